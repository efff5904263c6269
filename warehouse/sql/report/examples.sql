-- grain:  one rollout worth reading: kind (good, bad, filtered, malformed), why, and its place in the order of its kind
-- inputs: advantages, rollouts, prompts, selections, tasks; $run, $iteration (the one to show)
-- One good and one bad of each trained role, one filtered for each of the two commonest reasons, one malformed for each
-- of the two templates with most of them. Ties are broken by rollout id.
with here as (
    select rollouts.*, prompts.template
    from rollouts
    left join prompts using (run, prompt_id)
    where rollouts.run = $run and rollouts.iteration = $iteration
),
paid as (
    select
        here.rollout_id,
        here.role,
        row_number() over (
            partition by here.role order by advantages.reward desc, here.rollout_id
        ) as best,
        row_number() over (
            partition by here.role order by advantages.reward, here.rollout_id
        ) as worst,
        min(advantages.reward) over (partition by here.role) < max(advantages.reward) over (partition by here.role) as contrast
    from here
    join advantages using (run, rollout_id)
    where advantages.reward is not null and here.malformed is null
),
dropped as (
    select
        tasks.rollout_id,
        selections.reason,
        count(*) over (partition by selections.reason) as num_alike,
        row_number() over (
            partition by selections.reason order by selections.mean_score desc nulls last, tasks.rollout_id
        ) as place
    from selections
    join tasks using (run, task_id)
    where
        selections.run = $run
        and selections.iteration = $iteration
        and not selections.kept
        and tasks.text is not null
        and tasks.rollout_id is not null -- a given task was not sampled
),
unread as (
    select
        rollout_id,
        malformed,
        count(*) over (partition by role, template) as num_alike,
        row_number() over (partition by role, template order by rollout_id) as place
    from here
    where malformed is not null
),
chosen as (
    select 1 as rank, 'good' as kind, rollout_id, 'highest reward of its role in this iteration' as why, 0 as num_alike
    from paid where best = 1
    union all
    select 2, 'bad', rollout_id, 'lowest reward of a readable reply of its role', 0
    from paid where worst = 1 and contrast
    union all
    (
        select 3, 'filtered', rollout_id, reason, num_alike
        from dropped
        where place = 1
        order by num_alike desc, reason
        limit 2
    )
    union all
    (
        select 4, 'malformed', rollout_id, malformed, num_alike
        from unread
        where place = 1
        order by num_alike desc, rollout_id
        limit 2
    )
)
select kind, rollout_id, why
from chosen
order by rank, num_alike desc, rollout_id;
