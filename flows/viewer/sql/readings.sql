-- grain:  what a table holds as read of the rollout's last reply
-- inputs: replies; $run, $places, $id
select parsed, malformed
from replies
where run = $run and rollout_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
