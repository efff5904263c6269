-- grain:  what a rollout of a judge decided
-- inputs: judgments, votes, gates; $run, $id
select 'criterion' as what, criterion_id as about, task_id, rollout_id, verdict = 1 as accepted, malformed
from judgments
where
    run = $run and judge_rollout_id = $id
union all
select 'vote', task_id, task_id, rollout_id, vote = 1, malformed
from votes
where
    run = $run and judge_rollout_id = $id
union all
select 'gate ' || gate, task_id, task_id, null, passed, malformed
from gates
where
    run = $run and judge_rollout_id = $id
