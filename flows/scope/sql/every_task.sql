-- The baseline GRPO_data: given tasks are all kept, in the order they were drawn in.
-- grain:  one given task
-- inputs: tasks (one row a task)
select
    task_id,
    document_id,
    0::bigint as num_rollouts,
    null::varchar as reason
from tasks;
