-- grain:  an optimizer step of the update
-- inputs: updates; $run, $iteration, $phase, $step
select *
from updates
where
    run = $run
    and iteration is not distinct from $iteration
    and ($phase is null or phase = $phase)
    and step is not distinct from $step
order by role, optimizer_step
