-- grain:  a rollout of a list: what it says, what it earned and scored, or why it earned or said nothing
-- inputs: rollouts_table, rewards, scores, replies; $run, $ids
with mine as (
    select rollout_id, any_value(left(reply, 300)) as reply
    from rollouts_table
    where run = $run and list_contains($ids, rollout_id)
    group by rollout_id
),

scored as (
    select rollout_id, any_value(reward) as reward, any_value(score) as earned, any_value(unscorable) as unscorable
    from rewards
    where run = $run and list_contains($ids, rollout_id)
    group by rollout_id
),

marked as (
    select rollout_id, any_value(score) as score
    from scores
    where run = $run and list_contains($ids, rollout_id)
    group by rollout_id
),

unread as (
    select rollout_id, any_value(malformed) as malformed
    from replies
    where run = $run and list_contains($ids, rollout_id)
    group by rollout_id
)

select
    mine.*,
    scored.* exclude (rollout_id, earned),
    coalesce(scored.earned, marked.score) as score,
    unread.malformed
from mine
left join scored using (rollout_id)
left join marked using (rollout_id)
left join unread using (rollout_id)
