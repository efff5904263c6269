-- grain:  a criterion of the task
-- inputs: rubrics; $run, $places, $id
select distinct on (criterion_id) criterion_id, position, criterion, priority, weight, judge_rollout_id, malformed
from rubrics
where run = $run and task_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
order by criterion_id
