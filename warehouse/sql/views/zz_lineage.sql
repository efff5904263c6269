-- grain: one training datum. From the row an update trained on to the document it goes back to.
create view lineage as
select
    batches.run,
    batches.iteration,
    batches.phase,
    batches.step,
    batches.rollout_id,
    batches.datum,
    batches.advantage,
    advantages.reward,
    rollouts_table.role,
    rollouts_table.policy,
    rollouts_table.seed,
    rollouts_table.sample,
    prompts.prompt_id,
    prompts.template,
    prompts.template_version,
    coalesce(prompts.task_id, rollouts_table.rollout_id) as task_id,
    tasks.text as task,
    coalesce(prompts.document_id, tasks.document_id) as document_id,
    documents.title as document_title
from batches
join rollouts_table using (run, rollout_id)
-- Every rollout has a prompt. An inner join lets DuckDB join batches to prompts by run alone, first.
left join prompts on prompts.run = batches.run and prompts.prompt_id = rollouts_table.prompt_id
left join advantages on advantages.run = batches.run and advantages.rollout_id = batches.rollout_id
left join (select distinct on (run, task_id) * from tasks) as tasks
    on tasks.run = batches.run and tasks.task_id = coalesce(prompts.task_id, rollouts_table.rollout_id)
left join (
    -- a run may hold a document several times: in its corpus, and beside the prompts that show it
    select run, document_id, any_value(title) as title from documents group by run, document_id
) as documents
    on documents.run = batches.run and documents.document_id = coalesce(prompts.document_id, tasks.document_id);
