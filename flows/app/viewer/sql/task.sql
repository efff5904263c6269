-- grain:  the task
-- inputs: tasks; $run, $id
select *
from tasks
where run = $run and task_id = $id
order by iteration, step
limit 1
