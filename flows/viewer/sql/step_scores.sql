-- grain:  one phase at one step: mean score and reward of its rollouts, and their number
-- inputs: scores; $run
select
    iteration,
    phase,
    step,
    label,
    avg(score) as score,
    avg(total) as reward,
    count(*) as n
from scores
where run = $run
group by all
order by phase, label, iteration, step
