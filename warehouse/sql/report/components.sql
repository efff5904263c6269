-- grain:  one part of the reward at one step
-- inputs: scores; $run, $iteration (the last one to show)
-- The mean is over the rollouts that have the part; `n` counts them.
with parts as (
    select iteration, phase, step, unnest(map_entries(components)) as part
    from scores
    where run = $run and iteration <= $iteration
    union all
    select iteration, phase, step, {'key': 'total reward', 'value': total}
    from scores
    where run = $run and iteration <= $iteration and total is not null
)
select
    iteration,
    phase,
    step,
    part.key as component,
    avg(part.value) as mean,
    count(*) as n
from parts
group by all
order by phase, component, iteration, step;
