-- grain:  a rollout of a list
-- inputs: rollouts_table, rewards, scores, replies
-- bounds: $run, $iteration, $phase, $step, $role, $policy, $outcome, $reason, $sorting, $skipped
-- As they are stored, the first ones are found without looking at the others; null limits nothing.
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
        row_number() over () as place
    from rollouts_table
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($phase is null or phase = $phase)
        and ($step is null or step = $step)
        and ($role is null or role = $role)
        and ($policy is null or policy = $policy)
        and ($outcome != 'error' or error is not null)
    limit case when $outcome in ('', 'error') and $sorting = '' then $skipped + 101 end
),
scored as (
    select
        rollout_id,
        any_value(coalesce(reward, score)) as earned,
        count(reward) as num_paid,
        count(unscorable) as num_unscorable
    from rewards
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($sorting in ('best', 'worst') or $outcome in ('rewarded', 'unscorable'))
    group by rollout_id
),
marked as (
    select rollout_id, any_value(score) as score
    from scores
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($sorting in ('best', 'worst') or $outcome in ('right', 'wrong'))
    group by rollout_id
),
unread as (
    select distinct rollout_id
    from replies
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and $outcome = 'malformed'
        and ($reason is null or malformed = $reason)
        and malformed is not null
)
select mine.*
from mine
left join scored using (rollout_id)
left join marked using (rollout_id)
left join unread using (rollout_id)
where
    case $outcome
        when 'rewarded' then scored.num_paid > 0
        when 'unscorable' then scored.num_unscorable > 0
        when 'right' then marked.score = 1
        when 'wrong' then marked.score = 0
        when 'malformed' then unread.rollout_id is not null
        else true
    end
order by
    case when $sorting = 'best' then -coalesce(scored.earned, marked.score) end nulls last,
    case when $sorting = 'worst' then coalesce(scored.earned, marked.score) end nulls last,
    case when $sorting = 'longest' then -mine.num_sampled_tokens end nulls last,
    mine.place
limit 101 offset $skipped
