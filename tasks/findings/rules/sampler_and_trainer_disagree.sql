-- title:         sampler and trainer disagree
-- severity:      warning
-- sentence:      Before the update of the {role} in iteration {iteration}, step {step}, the trainer's policy was
--                {number:.4f} nats per token from the sampler's; {num} of {n} updates exceed {most}. The median
--                over all updates is {compared_with:.4f}.
-- compared with: the median of all updates
-- page:          updates
-- $most = 0.005: KL in nats per token that differences in arithmetic explain
-- grain:         the update at which both are furthest apart
-- inputs:        updates; $run
-- The estimate of the KL (k3) and the mean ratio minus 1 are of the first optimizer step, before weights have moved.
with updated as (
    select iteration, phase, step, role, abs(metrics['sampler_kl']) as kl
    from updates
    where run = $run and optimizer_step = 0
),
counted as (
    select *, count(*) over () as n, count(*) filter (where kl > $most) over () as num, median(kl) over () as middle
    from updated
    where kl is not null
)
select iteration, phase, step, role, kl as number, middle as compared_with, num, n
from counted
where kl > $most
order by kl desc
limit 1;

-- rows: the updates, the furthest apart first
select iteration, phase, step, role, policy, metrics['sampler_kl'] as sampler_kl, metrics['mean_ratio'] as mean_ratio
from updates
where run = $run and optimizer_step = 0 and abs(metrics['sampler_kl']) > $most
order by abs(metrics['sampler_kl']) desc;
