-- grain:  one gate of a task that a rollout wrote
-- inputs: gates; $run, $rollout_ids
select task_id as rollout_id, gate, kind, passed, malformed
from gates
where run = $run and list_contains($rollout_ids, task_id)
order by task_id, kind, gate;
