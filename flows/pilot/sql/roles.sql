-- grain: one role: its replies in the first iteration, how many could be read, and what they took.
-- inputs: rollouts; $run
select
    role,
    count(*) as replies,
    count(*) filter (where malformed is null and error is null) as readable,
    avg(num_sampled_tokens) as tokens,
    avg(cast(finish_reason = 'length' as int)) as cut_off
from rollouts
where
    run = $run
    and iteration = 1
    and phase not in ('evaluation', 'benchmark', 'monitor')
    and not starts_with(phase, 'probe')
group by role
order by role;
