-- title:         updates train on rollouts of another policy
-- severity:      warning
-- sentence:      {number:%} of the rollouts that the updates of iteration {iteration} trained on ({num} of {n}, {role})
--                were sampled by a policy other than the one that was updated.
-- compared with: the same share in the first iteration
-- page:          updates
-- $least = 0.05: the rule fires above this share
-- grain:         a player and iteration whose updates are off policy, the largest share first
-- inputs:        batches, rollouts, updates, policies; $run
-- A place holds one update, and one player may speak in several roles: rollouts belong to an update by their batch's place.
-- A rollout without a policy is a given reply, which nobody sampled.
with weights_of as (
    select policy, any_value(policy_hash) as policy_hash from policies where run = $run group by policy
),
updated as (
    select distinct updates.iteration, updates.phase, updates.step, updates.role, weights_of.policy_hash
    from updates join weights_of on weights_of.policy = updates.parent
    where updates.run = $run
),
sampled as (
    select rollout_id, any_value(policy_hash) as policy_hash
    from rollouts_table
    where run = $run and policy_hash != ''
    group by rollout_id
),
trained as (
    select distinct
        batches.iteration,
        updated.role,
        batches.rollout_id,
        sampled.policy_hash != updated.policy_hash as stale
    from batches
    join updated
        on
            updated.iteration = batches.iteration
            and updated.phase is not distinct from batches.phase
            and updated.step is not distinct from batches.step
    join sampled on sampled.rollout_id = batches.rollout_id
    where batches.run = $run
),
of_iteration as (
    select iteration, role, count(*) as n, count(*) filter (where stale) as num
    from trained
    group by iteration, role
),
compared as (
    select
        *,
        num / n as number,
        first_value(num / n) over (partition by role order by iteration) as compared_with
    from of_iteration
)
select iteration, role, n, num, number, compared_with
from compared
where num > $least * n
order by number desc
limit 1;

-- rows: the rollouts of another policy
with updated as (
    select distinct iteration, phase, step, parent
    from updates
    where run = $run and iteration = $iteration and role = $role
)
select batches.iteration, batches.phase, batches.step, batches.rollout_id, rollouts_table.policy, batches.advantage
from batches
join rollouts_table using (run, rollout_id)
join updated
    on
        updated.iteration = batches.iteration
        and updated.phase is not distinct from batches.phase
        and updated.step is not distinct from batches.step
where batches.run = $run and rollouts_table.policy_hash != '' and rollouts_table.policy != updated.parent
order by batches.step, batches.rollout_id;
