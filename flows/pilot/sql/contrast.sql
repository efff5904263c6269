-- grain: one trained role: the groups whose rewards an update compares, and those that differ within.
-- inputs: advantages, rollouts_table; $run
with groups_of as (
    select
        advantages.phase,
        played.role,
        advantages.group_id,
        stddev_pop(advantages.reward) as spread,
        max(abs(advantages.advantage)) as advantage
    from advantages
    join rollouts_table as played using (run, rollout_id)
    where advantages.run = $run and advantages.iteration = 1
    group by advantages.phase, played.role, advantages.group_id
)
select
    role,
    count(*) as groups,
    count(*) filter (where advantage > 0) as with_contrast,
    avg(spread) as spread
from groups_of
group by role
order by role;
