-- grain:  a rollout of the document: its prompt shows it, or is about a task written from it
-- inputs: prompts, tasks, rollouts_table; $run, $id
with about as (
    select distinct prompt_id, role
    from prompts
    where
        run = $run
        and (
            document_id = $id
            or task_id in (select task_id from tasks where run = $run and document_id = $id)
        )
)
select rollouts_table.rollout_id, rollouts_table.role, rollouts_table.iteration, rollouts_table.phase
from rollouts_table
where run = $run and prompt_id in (select prompt_id from about)
order by rollouts_table.iteration, rollouts_table.phase, rollouts_table.role, rollouts_table.rollout_id
