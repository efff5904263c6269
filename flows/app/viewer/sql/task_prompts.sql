-- grain:  a prompt about the task, and how many rollouts were sampled for it
-- inputs: prompts, rollouts_table; $run, $id
with about as (
    select prompt_id, iteration, phase, step, role, template, template_version, rollout_id, criterion_id
    from prompts
    where run = $run and task_id = $id
)
select distinct on (about.prompt_id)
    about.*,
    count(rollouts_table.rollout_id) over (partition by about.prompt_id) as num_rollouts,
    any_value(rollouts_table.rollout_id) over (partition by about.prompt_id) as first_rollout_id
from about
left join (
    select rollout_id, prompt_id
    from rollouts_table
    where
        run = $run
        and prompt_id in (select prompt_id from about)
) as rollouts_table using (prompt_id)
order by about.iteration, about.phase, about.step, about.role, about.prompt_id
