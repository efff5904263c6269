-- grain:  what a rollout of a judge decided
-- inputs: judgments, votes, gates, marks; $run, $id
select 'criterion' as what, criterion_id as about, task_id, rollout_id, verdict = 1 as accepted, null as mark, malformed
from judgments
where
    run = $run and judge_rollout_id = $id
union all
select 'vote', task_id, task_id, rollout_id, vote = 1, null, malformed
from votes
where
    run = $run and judge_rollout_id = $id
union all
select 'gate ' || gate, task_id, task_id, null, passed, null, malformed
from gates
where
    run = $run and judge_rollout_id = $id
union all
select 'mark ' || coalesce(label, ''), coalesce(rollout_id, task_id), task_id, rollout_id, null, mark, malformed
from marks
where
    run = $run and judge_rollout_id = $id
