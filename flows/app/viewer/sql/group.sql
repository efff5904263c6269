-- grain:  a rollout of the group, best reward first
-- inputs: rollouts_table, replies, rewards, advantages; $run, $id, $characters
with mine as (
    select
        rollout_id,
        sample,
        policy,
        role,
        seed,
        finish_reason,
        error,
        num_turns,
        num_searches,
        num_sampled_tokens,
        left(reply, $characters) as reply,
        length(reply) as num_chars
    from rollouts_table
    where run = $run and prompt_id = $id
),
scored as (
    select
        rollout_id,
        any_value(score) as score,
        any_value(reward) as reward,
        any_value(components) as components,
        any_value(unscorable) as unscorable
    from rewards
    where run = $run and group_id = $id
    group by rollout_id
),
paid as (
    select rollout_id, any_value(advantage) as advantage
    from advantages
    where run = $run and group_id = $id
    group by rollout_id
)
select mine.*, scored.* exclude (rollout_id), paid.advantage
from mine
left join scored using (rollout_id)
left join paid using (rollout_id)
order by coalesce(scored.reward, scored.score) desc nulls last, paid.advantage desc nulls last, mine.sample
limit 200
