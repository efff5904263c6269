-- grain:  what a table holds as read of the rollout's last reply
-- inputs: replies; $run, $id
select parsed, malformed
from replies
where run = $run and rollout_id = $id
