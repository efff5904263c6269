-- grain:  a rollout of a list, in the order in which it is stored
-- inputs: rollouts_table, scores, replies; $run, $iteration, $phase, $step, $role, $policy, $skipped
with mine as (
    select
        rollout_id,
        prompt_id,
        iteration,
        phase,
        step,
        role,
        sample,
        finish_reason,
        num_sampled_tokens,
        left(reply, 300) as reply
    from rollouts_table
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($phase is null or phase = $phase)
        and ($step is null or step = $step)
        and ($role is null or role = $role)
        and ($policy is null or policy = $policy)
    limit 101 offset $skipped
),
scored as (
    select rollout_id, any_value(total) as total, any_value(score) as score, any_value(unscorable) as unscorable
    from scores
    where run = $run and rollout_id in (select rollout_id from mine)
    group by rollout_id
),
unread as (
    select rollout_id, any_value(malformed) as malformed
    from replies
    where run = $run and rollout_id in (select rollout_id from mine)
    group by rollout_id
)
select mine.*, scored.* exclude (rollout_id), unread.malformed
from mine
left join scored using (rollout_id)
left join unread using (rollout_id)
