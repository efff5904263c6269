-- grain:  a role that a run has rollouts of
-- inputs: rollouts_table; $run
select distinct role
from rollouts_table
where run = $run
order by role
