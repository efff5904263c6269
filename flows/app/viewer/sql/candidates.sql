-- grain:  a candidate of an iteration, kept or dropped for a reason
-- inputs: selections, tasks; $run, $iteration, $reason ('' for those kept, null for all), $phase, $label, $skipped, $characters
with mine as (
    select task_id, iteration, phase, step, label, kept, reason, num_correct, num_judged, num_rollouts, mean_score
    from selections
    where
        run = $run
        and iteration is not distinct from $iteration
        and ($phase is null or phase = $phase)
        and ($label is null or label = $label)
        and ($reason is null or coalesce(reason, '') = $reason)
    order by kept desc, mean_score desc nulls last, task_id
    limit 100 offset $skipped
),
about as (
    select task_id, any_value(left(text, 400)) as text, any_value(task_type) as task_type, any_value(malformed) as malformed
    from tasks
    where run = $run and task_id in (select task_id from mine)
    group by task_id
)
select mine.*, about.text, about.task_type, about.malformed
from mine
left join about using (task_id)
order by mine.kept desc, mine.mean_score desc nulls last, mine.task_id
