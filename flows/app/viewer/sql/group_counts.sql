-- grain:  one reason for which groups of rollouts of an iteration are not trained on; null counts those that are
-- inputs: groups; $run, $iteration
select iteration, phase, label, reason, kept, count(*) as n
from groups
where run = $run and iteration is not distinct from $iteration
group by all
order by iteration, phase, label, kept desc, n desc, reason
