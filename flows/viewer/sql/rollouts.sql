-- grain:  a rollout of a list, with what it earned
-- inputs: rollouts_table, scores, rewards, replies; $run, $iteration, $phase, $step, $role, $outcome, $sorting, $skipped, $policy
with mine as (
    select rollout_id, prompt_id, iteration, phase, step, role, sample, finish_reason, num_sampled_tokens
    from rollouts_table
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($phase is null or phase = $phase)
        and ($step is null or step = $step)
        and ($role is null or role = $role)
        and ($policy is null or policy = $policy)
        and ($outcome != 'error' or error is not null)
),
scored as (
    select rollout_id, any_value(total) as total, any_value(score) as score, any_value(unscorable) as unscorable
    from scores
    where run = $run and ($iteration is null or iteration = $iteration)
    group by rollout_id
),
unread as (
    select rollout_id, any_value(malformed) as malformed
    from replies
    where run = $run and ($iteration is null or iteration = $iteration) and malformed is not null
    group by rollout_id
),
chosen as (
    select mine.*, scored.total, scored.score, scored.unscorable, unread.malformed
    from mine
    left join scored using (rollout_id)
    left join unread using (rollout_id)
    where
        ($outcome not in ('rewarded', 'unscorable', 'malformed'))
        or ($outcome = 'rewarded' and scored.total is not null)
        or ($outcome = 'unscorable' and scored.unscorable is not null)
        or ($outcome = 'malformed' and unread.malformed is not null)
    order by
        case when $sorting = 'best' then -coalesce(scored.total, scored.score) end nulls last,
        case when $sorting = 'worst' then coalesce(scored.total, scored.score) end nulls last,
        case when $sorting = 'longest' then -mine.num_sampled_tokens end nulls last,
        mine.iteration,
        mine.phase,
        mine.step,
        mine.role,
        mine.rollout_id
    limit 101 offset $skipped
),
texts as (
    select rollout_id, any_value(left(reply, 300)) as reply
    from rollouts_table
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and rollout_id in (select rollout_id from chosen)
    group by rollout_id
)
select chosen.*, texts.reply
from chosen
left join texts using (rollout_id)
order by
    case when $sorting = 'best' then -coalesce(chosen.total, chosen.score) end nulls last,
    case when $sorting = 'worst' then coalesce(chosen.total, chosen.score) end nulls last,
    case when $sorting = 'longest' then -chosen.num_sampled_tokens end nulls last,
    chosen.iteration,
    chosen.phase,
    chosen.step,
    chosen.role,
    chosen.rollout_id
