-- grain:  the rollout
-- inputs: rollouts_table; $run, $id
select *
from rollouts_table
where run = $run and rollout_id = $id
limit 1
