-- What the monitors measured.
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
where run in (select unnest($runs)) and benchmark like '%monitor' and iteration > 0 and score is not null
group by run, iteration, metric
order by run, metric, iteration
