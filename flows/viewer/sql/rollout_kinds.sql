-- grain:  a role in a phase of an iteration, and how many rollouts it has
-- inputs: rollouts_table; $run
select iteration, phase, role, count(*) as n
from rollouts_table
where run = $run
group by all
order by iteration, phase, role
