-- grain: one trained role: the groups whose rewards an update compares, and those that differ within.
-- inputs: rewards, rollouts_table; $run
with groups_of as (
    select
        rewards.phase,
        played.role,
        rewards.group_id,
        stddev_pop(rewards.total) as spread,
        max(abs(rewards.advantage)) as advantage
    from rewards
    join rollouts_table as played using (run, rollout_id)
    where rewards.run = $run and rewards.iteration = 1
    group by rewards.phase, played.role, rewards.group_id
)
select
    role,
    count(*) as groups,
    count(*) filter (where advantage > 0) as with_contrast,
    avg(spread) as spread
from groups_of
group by role
order by role;
