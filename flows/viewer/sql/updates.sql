-- grain:  one optimizer step
-- inputs: updates; $run
select
    iteration,
    phase,
    step,
    label,
    optimizer_step,
    role,
    policy,
    parent,
    map_extract_value(metrics, 'loss') as loss,
    map_extract_value(metrics, 'kl') as kl,
    map_extract_value(metrics, 'clip_fraction') as clip_fraction,
    map_extract_value(metrics, 'grad_norm') as grad_norm,
    map_extract_value(metrics, 'entropy') as entropy,
    map_extract_value(metrics, 'sampler_kl') as sampler_kl,
    map_extract_value(metrics, 'num_datums') as num_datums
from updates
where run = $run
order by iteration, role, phase, step, optimizer_step
