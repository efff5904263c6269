-- grain:  one rollout, with all that was said in it and what it earned
-- inputs: rollouts, prompts, tasks, documents, rewards, advantages; $run, $rollout_ids
-- A rollout that wrote a task is about that task, an answer or a judgment about the task of its prompt.
with wanted as (
    select
        rollouts.*,
        prompts.template,
        prompts.template_version,
        prompts.document_id,
        coalesce(prompts.task_id, rollouts.rollout_id) as task_id
    from rollouts
    left join prompts using (run, prompt_id)
    where rollouts.run = $run and list_contains($rollout_ids, rollouts.rollout_id)
),
said as (
    select rollout_id, any_value(turns) as turns
    from rollouts_table
    where run = $run and list_contains($rollout_ids, rollout_id)
    group by rollout_id
),
asked as (
    select prompt_id, any_value(messages) as messages
    from prompts
    where run = $run and prompt_id in (select prompt_id from wanted)
    group by prompt_id
),
about as (
    select task_id, any_value(text) as task, any_value(document_id) as document_id
    from tasks
    where run = $run and task_id in (select task_id from wanted)
    group by task_id
),
sources as (
    select document_id, any_value(title) as title
    from documents
    where
        run = $run
        and (
            document_id in (select document_id from wanted)
            or document_id in (select document_id from about)
        )
    group by document_id
),
paid as (
    select rollout_id, any_value(components) as components, any_value(reward) as reward
    from rewards
    where run = $run and list_contains($rollout_ids, rollout_id)
    group by rollout_id
),
trained as (
    select rollout_id, any_value(advantage) as advantage
    from advantages
    where run = $run and list_contains($rollout_ids, rollout_id)
    group by rollout_id
)
select
    wanted.rollout_id,
    wanted.role,
    wanted.phase,
    wanted.step,
    wanted.policy,
    wanted.seed,
    wanted.finish_reason,
    wanted.num_searches,
    wanted.num_sampled_tokens,
    wanted.malformed,
    wanted.template,
    wanted.template_version,
    asked.messages,
    said.turns,
    wanted.task_id,
    about.task,
    coalesce(wanted.document_id, about.document_id) as document_id,
    sources.title as document_title,
    paid.components,
    paid.reward,
    trained.advantage
from wanted
left join said using (rollout_id)
left join asked using (prompt_id)
left join about using (task_id)
left join sources on sources.document_id = coalesce(wanted.document_id, about.document_id)
left join paid using (rollout_id)
left join trained using (rollout_id);
