-- grain:  one reason for which candidates of an iteration were not kept; null counts those that were
-- inputs: selections; $run, $iteration
select
    iteration,
    phase,
    label,
    reason,
    kept,
    count(*) as n,
    avg(mean_score) as mean_score
from selections
where run = $run and iteration is not distinct from $iteration
group by all
order by iteration, phase, label, kept desc, n desc, reason
