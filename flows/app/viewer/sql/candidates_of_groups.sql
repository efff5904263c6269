-- grain:  a group of rollouts of an iteration, trained on or left out for a reason
-- inputs: groups, tasks; $run, $iteration, $reason ('' for those kept, null for all), $phase, $label, $skipped
with mine as (
    select group_id, task_id, iteration, phase, step, label, kept, reason, measures
    from groups
    where
        run = $run
        and iteration is not distinct from $iteration
        and ($phase is null or phase = $phase)
        and ($label is null or label = $label)
        and ($reason is null or coalesce(reason, '') = $reason)
    order by kept desc, step, group_id
    limit 100 offset $skipped
),
about as (
    select task_id, any_value(left(text, 400)) as text
    from tasks
    where run = $run and task_id in (select task_id from mine)
    group by task_id
)
select mine.*, about.text
from mine
left join about using (task_id)
order by mine.kept desc, mine.step, mine.group_id
