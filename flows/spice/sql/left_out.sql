-- SPICE, algorithm 1 l.7: the attempts that are left out of their document's group of G. Those drawn keep the ratio of valid to
-- invalid ones, rounded half up; a document with a valid question has one in its group.
-- grain:  one attempt that is left out
-- inputs: tasks (one row an attempt)
-- bounds: $group_size, $seed
with attempts as (
    select
        task_id,
        document_id,
        malformed is null as valid,
        md5(task_id || '-' || $seed::varchar) as lot
    from tasks
    where malformed is distinct from 'engine error'
),
counted as (
    select
        *,
        count(*) over (partition by document_id) as num_attempts,
        count(*) filter (where valid) over (partition by document_id) as num_valid,
        row_number() over (partition by document_id, valid order by lot, task_id) as place
    from attempts
),
quotas as (
    select
        *,
        least($group_size, num_attempts) as num_drawn,
        greatest(
            (2 * least($group_size, num_attempts) * num_valid + num_attempts) // (2 * num_attempts),
            least(num_valid, 1)
        ) as num_valid_drawn
    from counted
)
select
    task_id,
    document_id,
    false as kept,
    'not drawn into its group' as reason,
    null as num_correct,
    null as num_judged,
    0 as num_rollouts,
    null as mean_score
from quotas
where place > case when valid then num_valid_drawn else num_drawn - num_valid_drawn end
union all
select task_id, document_id, false, 'engine error', null, null, 0, null
from tasks
where malformed = 'engine error'
order by task_id;
