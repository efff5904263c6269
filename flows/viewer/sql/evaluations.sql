-- grain:  one metric of a benchmark in an iteration; several measurements are averaged by their number of tasks
-- inputs: evaluations; $run
select
    run,
    iteration,
    benchmark,
    metric,
    sum(n)::bigint as n,
    sum(score * n) / nullif(sum(n), 0) as score,
    case when count(*) = 1 then any_value(standard_error) end as standard_error,
    max(abs(score)) as largest,
    min(score) as smallest
from evaluations
where ($run = '' or run = $run) and score is not null
group by run, iteration, benchmark, metric
order by run, benchmark, metric, iteration
