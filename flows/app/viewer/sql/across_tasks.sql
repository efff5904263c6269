-- grain:  a task of any run and iteration that is the same: its id, or its text
-- inputs: tasks; $id, $text
select
    run,
    iteration,
    phase,
    step,
    task_id,
    document_id,
    left(text, 300) as text,
    task_id = $id as same_id
from tasks
where task_id = $id or ($text is not null and lower(trim(text)) = lower(trim($text)))
order by run, iteration, phase, step, task_id
limit 500
