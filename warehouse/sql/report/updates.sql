-- grain:  one metric of one optimizer step
-- inputs: updates; $run, $iteration (the last one to show)
with metrics as (
    select iteration, phase, step, optimizer_step, role, unnest(map_entries(metrics)) as entry
    from updates
    where run = $run and iteration <= $iteration
)
select
    iteration,
    coalesce(step, 1) as step,
    optimizer_step,
    role,
    entry.key as metric,
    entry.value
from metrics
order by role, metric, iteration, phase, step, optimizer_step;
