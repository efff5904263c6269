-- grain:  one metric of a benchmark in an iteration
-- inputs: evaluations; $run, $iteration (the last one to show)
-- A benchmark measured several times in an iteration is averaged over its measurements, weighted by their tasks; such a mean has
-- no standard error.
select
    iteration,
    benchmark,
    metric,
    sum(n)::bigint as n,
    sum(score * n) / nullif(sum(n), 0) as score,
    case when count(*) = 1 then any_value(standard_error) end as standard_error
from evaluations
where run = $run and iteration <= $iteration and score is not null
group by iteration, benchmark, metric
order by benchmark, metric, iteration;
