-- grain: one reason why replies of a role could not be read, the most frequent first, with one such reply.
-- inputs: rollouts; $run
select
    role,
    coalesce(malformed, error) as reason,
    count(*) as replies,
    arg_min(reply, rollout_id) as example
from rollouts
where
    run = $run
    and iteration = 1
    and phase not in ('evaluation', 'benchmark', 'monitor')
    and not starts_with(phase, 'probe')
    and (malformed is not null or error is not null)
group by role, reason
order by role, replies desc, reason;
