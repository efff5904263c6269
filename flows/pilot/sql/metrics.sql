-- grain: one metric that was measured before an update, such as the errors of a judge on planted answers.
-- inputs: evaluations; $run
select
    benchmark,
    metric,
    sum(score * n) / sum(n) as value
from evaluations
where run = $run and iteration = 1 and score is not null
group by benchmark, metric
order by benchmark, metric;
