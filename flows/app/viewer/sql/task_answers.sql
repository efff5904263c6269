-- grain:  an answer to the task, with what it earned
-- inputs: answers, rollouts_table, rewards, advantages, matches, votes; $run, $id, $characters
with mine as (
    select distinct on (rollout_id) *
    from answers
    where run = $run and task_id = $id
),
said as (
    select
        rollout_id,
        any_value(policy) as policy,
        any_value(role) as role,
        any_value(sample) as sample,
        any_value(finish_reason) as finish_reason,
        any_value(num_sampled_tokens) as num_sampled_tokens,
        any_value(left(reply, $characters)) as reply
    from rollouts_table
    where
        run = $run
        and rollout_id in (select rollout_id from mine)
    group by rollout_id
),
scored as (
    select
        rollout_id,
        any_value(score) as score,
        any_value(reward) as reward,
        any_value(components) as components,
        any_value(unscorable) as unscorable
    from rewards
    where
        run = $run
        and rollout_id in (select rollout_id from mine)
    group by rollout_id
),
paid as (
    select rollout_id, any_value(advantage) as advantage
    from advantages
    where
        run = $run
        and rollout_id in (select rollout_id from mine)
    group by rollout_id
),
matched as (
    select rollout_id, any_value(matched) as matched, any_value(reason) as match_reason
    from matches
    where run = $run and task_id = $id
    group by rollout_id
),
voted as (
    select rollout_id, sum(vote) as votes_for, count(*) as num_votes
    from votes
    where run = $run and task_id = $id
    group by rollout_id
)
select
    mine.rollout_id,
    mine.prompt_id,
    mine.iteration,
    mine.phase,
    mine.step,
    left(mine.answer, $characters) as answer,
    mine.answer_tokens,
    mine.malformed,
    said.* exclude (rollout_id),
    scored.* exclude (rollout_id),
    paid.advantage,
    matched.matched,
    matched.match_reason,
    voted.votes_for,
    voted.num_votes
from mine
left join said using (rollout_id)
left join scored using (rollout_id)
left join paid using (rollout_id)
left join matched using (rollout_id)
left join voted using (rollout_id)
order by mine.iteration, mine.phase, mine.step, scored.reward desc nulls last, said.sample, mine.rollout_id
limit 200
