-- grain:  one optimizer step, with all its metrics
-- inputs: updates; $run, $iteration (the last one to show, null for all)
select iteration, phase, step, label, optimizer_step, role, policy, parent, metrics
from updates
where run = $run and ($iteration is null or iteration <= $iteration)
order by iteration, role, phase, step, optimizer_step;
