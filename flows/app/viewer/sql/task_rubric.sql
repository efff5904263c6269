-- grain:  a criterion of the task
-- inputs: rubrics; $run, $id
select distinct on (criterion_id) criterion_id, position, criterion, priority, weight, judge_rollout_id, malformed
from rubrics
where run = $run and task_id = $id
order by criterion_id
