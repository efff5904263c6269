-- grain:  a phase of an iteration: tasks written, readable, and passed by all their gates
-- inputs: tasks, gates; $run, $iteration
with written as (
    select phase, label, task_id, any_value(text) is not null as readable
    from tasks
    where run = $run and iteration is not distinct from $iteration and rollout_id is not null
    group by all
),
checked as (
    select task_id, bool_and(coalesce(passed, false)) as passed
    from gates
    where run = $run and iteration is not distinct from $iteration
    group by task_id
)
select
    written.phase,
    written.label,
    count(*) as num_written,
    count(*) filter (where written.readable) as num_readable,
    count(checked.task_id) as num_checked,
    count(*) filter (where checked.passed) as num_passed
from written
left join checked using (task_id)
group by all
order by written.phase, written.label
