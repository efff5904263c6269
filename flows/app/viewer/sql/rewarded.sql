-- grain:  a place of rewards that hold the group
-- inputs: rewards; $run, $id (of the group)
select distinct iteration, phase, step, label
from rewards
where run = $run and group_id = $id
order by all
