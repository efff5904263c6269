-- grain:  one metric of a benchmark in an iteration of a run
-- inputs: evaluations; $run ('' for all runs), $iteration (the last one to show, null for all)
-- A benchmark measured several times in an iteration is averaged over its measurements, weighted by their tasks; such a mean has
-- no standard error. `largest` is the largest distance from 0.
select
    run,
    iteration,
    benchmark,
    metric,
    sum(n)::bigint as n,
    sum(score * n) / nullif(sum(n), 0) as score,
    case when count(*) = 1 then any_value(standard_error) end as standard_error,
    max(abs(score)) as largest,
    min(score) as smallest,
    bool_and(is_held_out(phase, benchmark)) as is_held_out
from evaluations
where ($run = '' or run = $run) and ($iteration is null or iteration <= $iteration) and score is not null
group by run, iteration, benchmark, metric
order by run, benchmark, metric, iteration;
