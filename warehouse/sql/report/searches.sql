-- grain:  one role in a phase at one step; only roles that search at all
-- inputs: rollouts; $run, $iteration (the last one to show)
with counted as (
    select
        iteration,
        phase,
        step,
        role,
        avg(num_searches) as mean,
        count(*) as n
    from rollouts
    where run = $run and iteration <= $iteration
    group by all
)
select *
from counted
qualify max(mean) over (partition by role) > 0
order by role, phase, iteration, step;
