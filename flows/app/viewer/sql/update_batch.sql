-- grain:  a datum of the update's batch, largest advantage first; with $low or $high only those in these bounds
-- inputs: batches, advantages, rollouts_table, prompts; $run, $iteration, $phase, $step, $low, $high
with mine as (
    select rollout_id, datum, advantage, length(completion_token_ids) as num_tokens, list_sum(loss_mask) as num_trained
    from batches
    where
        run = $run
        and iteration is not distinct from $iteration
        and ($phase is null or phase = $phase)
        and step is not distinct from $step
        and ($low is null or advantage >= $low)
        and ($high is null or advantage <= $high)
),
paid as (
    select rollout_id, any_value(reward) as reward, any_value(task_id) as task_id, any_value(group_id) as group_id
    from advantages
    where
        run = $run
        and rollout_id in (select rollout_id from mine)
    group by rollout_id
),
said as (
    select rollout_id, any_value(role) as role, any_value(left(reply, 200)) as reply
    from rollouts_table
    where
        run = $run
        and rollout_id in (select rollout_id from mine)
    group by rollout_id
)
select mine.*, paid.* exclude (rollout_id), said.* exclude (rollout_id)
from mine
left join paid using (rollout_id)
left join said using (rollout_id)
order by mine.advantage desc, mine.rollout_id, mine.datum
limit 1000
