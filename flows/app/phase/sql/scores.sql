-- The held-out scores of every run, from the base model on.
--
-- Grain: a run and iteration.
-- Inputs: evaluations; $runs, their names; $benchmark and $metric, the held-out score.
select run, iteration, avg(score) as score, max(standard_error) as standard_error
from evaluations
where run in (select unnest($runs)) and benchmark = $benchmark and metric = $metric
group by run, iteration
order by run, iteration
