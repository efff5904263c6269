-- What the monitors measured. Falls of held-out scores are counted from the scores themselves (`runs.sql`).
--
-- Grain: a run, iteration and metric of a monitor.
-- Inputs: evaluations; $runs, their names. Benchmarks of monitors end in "monitor".
select
    run,
    iteration,
    metric,
    max(score) as highest,
    min(score) as lowest
from evaluations
where
    run in (select unnest($runs))
    and benchmark like '%monitor'
    and metric not like 'falls of %'
    and iteration > 0
    and score is not null
group by run, iteration, metric
order by run, metric, iteration
