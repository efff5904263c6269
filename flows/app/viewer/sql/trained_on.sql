-- grain:  an update that trained on rollouts of a list
-- inputs: batches, updates; $run, $ids
with mine as (
    select iteration, phase, step, rollout_id, advantage
    from batches
    where
        run = $run
        and list_contains($ids, rollout_id)
)
select
    mine.iteration,
    mine.phase,
    mine.step,
    any_value(updates.policy) as policy,
    any_value(updates.role) as role,
    count(distinct mine.rollout_id) as num_rollouts,
    min(mine.advantage) as lowest,
    max(mine.advantage) as highest
from mine
left join
    (
        select distinct iteration, phase, step, policy, role
        from updates
        where run = $run
    ) as updates
    on
        updates.iteration is not distinct from mine.iteration
        and updates.phase is not distinct from mine.phase
        and updates.step is not distinct from mine.step
group by mine.iteration, mine.phase, mine.step
order by mine.iteration, mine.phase, mine.step
