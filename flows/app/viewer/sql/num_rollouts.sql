-- grain:  the number of rollouts of a list
-- inputs: rollouts_table, rewards, scores, replies
-- bounds: $run, $iteration, $phase, $step, $role, $policy, $outcome, $reason; null limits nothing
with outcomes as (
    select distinct rollout_id
    from rewards
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($outcome = 'rewarded' and reward is not null or $outcome = 'unscorable' and unscorable is not null)
    union
    select rollout_id
    from scores
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and ($outcome = 'right' and score = 1 or $outcome = 'wrong' and score = 0)
    union
    select rollout_id
    from replies
    where
        run = $run
        and ($iteration is null or iteration = $iteration)
        and $outcome = 'malformed'
        and ($reason is null or malformed = $reason)
        and malformed is not null
)
select count(*) as num
from rollouts_table
where
    run = $run
    and ($iteration is null or iteration = $iteration)
    and ($phase is null or phase = $phase)
    and ($step is null or step = $step)
    and ($role is null or role = $role)
    and ($policy is null or policy = $policy)
    and ($outcome != 'error' or error is not null)
    and ($outcome in ('', 'error') or rollout_id in (select outcomes.rollout_id from outcomes))
