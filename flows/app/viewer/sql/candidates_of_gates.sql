-- grain:  a task of an iteration that a gate decided about
-- inputs: gates, tasks; $run, $iteration, $gate, $reason ('passed', 'refused' or 'not readable', null for all), $phase, $skipped
with mine as (
    select
        task_id,
        iteration,
        phase,
        step,
        label,
        passed as kept,
        coalesce(malformed, gate) as reason,
        judge_rollout_id
    from gates
    where
        run = $run
        and iteration is not distinct from $iteration
        and gate = $gate
        and ($phase is null or phase = $phase)
        and ($reason is null or $reason = case when passed then 'passed' when not passed then 'refused' else 'not readable' end)
    order by step, task_id
    limit 100 offset $skipped
),
about as (
    select task_id, any_value(left(text, 400)) as text, any_value(malformed) as malformed
    from tasks
    where run = $run and task_id in (select task_id from mine)
    group by task_id
)
select mine.*, about.text, about.malformed
from mine
left join about using (task_id)
order by mine.step, mine.task_id
