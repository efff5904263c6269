-- grain:  what a rollout earned
-- inputs: scores, rewards; $run, $id
select
    scores.group_id,
    scores.task_id,
    scores.score,
    scores.components,
    scores.total,
    scores.unscorable,
    rewards.advantage
from (select * from scores where run = $run and rollout_id = $id limit 1) as scores
left join (select rollout_id, advantage from rewards where run = $run and rollout_id = $id limit 1) as rewards
    on true
