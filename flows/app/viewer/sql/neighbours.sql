-- grain:  the rollout before and the one after it in its table
-- inputs: rollouts_table; $run, $id, $iteration, $phase, $step, $label
with place as (
    select
        rollout_id,
        lag(rollout_id) over () as previous,
        lead(rollout_id) over () as next,
        row_number() over () as number,
        count(*) over () as total
    from rollouts_table
    where
        run = $run
        and iteration is not distinct from $iteration
        and phase is not distinct from $phase
        and step is not distinct from $step
        and label is not distinct from $label
)
select previous, next, number, total
from place
where rollout_id = $id
