-- grain:  what a rollout earned
-- inputs: rewards, advantages; $run, $id
with scored as (
    select rollout_id, group_id, task_id, score, components, reward, unscorable
    from rewards
    where
        run = $run
        and rollout_id = $id
    limit 1
),
paid as (
    select rollout_id, advantage
    from advantages
    where
        run = $run
        and rollout_id = $id
    limit 1
)
select scored.* exclude (rollout_id), paid.advantage
from scored
left join paid using (rollout_id)
