-- grain:  a task written from the document, or with it as evidence
-- inputs: tasks, selections, answers, rewards; $run, $id
with mine as (
    select
        task_id,
        any_value(iteration) as iteration,
        any_value(phase) as phase,
        any_value(step) as step,
        any_value(rollout_id) as rollout_id,
        any_value(document_id = $id) as is_source,
        any_value(left(text, 400)) as text,
        any_value(malformed) as malformed
    from tasks
    where run = $run and (document_id = $id or list_contains(evidence, $id))
    group by task_id
),
chosen as (
    select task_id, bool_or(kept) as kept, any_value(reason) as reason, any_value(mean_score) as mean_score
    from selections
    where run = $run and task_id in (select task_id from mine)
    group by task_id
),
answered as (
    select task_id, count(*) as num_answers
    from answers
    where run = $run and task_id in (select task_id from mine)
    group by task_id
)
select mine.*, chosen.kept, chosen.reason, chosen.mean_score, answered.num_answers
from mine
left join chosen using (task_id)
left join answered using (task_id)
order by mine.iteration, mine.phase, mine.step, mine.task_id
limit 500
