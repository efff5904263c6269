-- SPICE, algorithm 1 l.7: the attempts that are left out of their document's group of G. Those drawn keep the ratio of valid to
-- invalid ones, rounded half up; a document with a valid question has one in its group.
-- grain:  one attempt that is left out, with a reason if its prompt was not sampled from
-- inputs: tasks (one row an attempt)
-- bounds: $group_size, $seed
with attempts as (
    select
        *,
        malformed is null as valid,
        coalesce(malformed in ('engine error', 'prompt over the limit'), false) as failed
    from tasks
),
counted as (
    select
        *,
        count(*) filter (where not failed) over (partition by document_id) as num_attempts,
        count(*) filter (where valid) over (partition by document_id) as num_valid,
        row_number() over (
            partition by document_id, failed, valid order by md5(task_id || '-' || $seed::varchar), task_id
        ) as place
    from attempts
),
quotas as (
    select
        *,
        least($group_size, num_attempts) as num_drawn,
        greatest(
            (2 * num_drawn * num_valid + num_attempts) // (2 * num_attempts),
            least(num_valid, 1)
        ) as num_valid_drawn
    from counted
)
select
    task_id,
    document_id,
    0 as num_rollouts,
    if(failed, malformed, null) as reason
from quotas
where failed or place > if(valid, num_valid_drawn, num_drawn - num_valid_drawn)
order by task_id;
