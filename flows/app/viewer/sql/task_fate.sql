-- grain:  a table that says what became of the task, or of the rollouts about it; a pool once, from where it was first in it
-- inputs: selections, groups, labels, novelties, draws, pools; $run, $id
select
    iteration,
    phase,
    step,
    'selection' as what,
    coalesce(reason, 'kept') as outcome,
    kept,
    null as group_id,
    to_json({mean_score: mean_score, num_correct: num_correct, num_judged: num_judged, num_rollouts: num_rollouts})::varchar
        as details
from selections
where run = $run and task_id = $id
union all
select
    iteration,
    phase,
    step,
    'group',
    coalesce(reason, 'kept'),
    kept,
    group_id,
    to_json({measures: measures})::varchar
from groups
where run = $run and task_id = $id
union all
select
    iteration,
    phase,
    step,
    'majority',
    coalesce(answer, reason, 'none'),
    null,
    null,
    to_json({share: share, agreeing: num_agreeing, readable: num_readable, answers: num_answers, tied: tied})::varchar
from labels
where run = $run and task_id = $id
union all
select
    iteration,
    phase,
    step,
    'novelty',
    coalesce('cluster of ' || cluster_size, 'no text'),
    null,
    null,
    to_json({cluster: cluster, share: share, nearest: nearest, similarity: similarity})::varchar
from novelties
where run = $run and task_id = $id
union all
select
    min(iteration),
    arg_min(phase, (iteration, step)),
    arg_min(step, (iteration, step)),
    'pool',
    coalesce(reason, 'in the pool'),
    kept,
    null,
    to_json(
        {
            times: count(*),
            score: arg_max(score, (iteration, step)),
            num_uses: max(num_uses),
            last_used: max(last_used),
            origin: parse_filename(origin)
        }
    )::varchar
from pools
where run = $run and task_id = $id
group by reason, kept, origin
union all
select
    iteration,
    phase,
    step,
    'drawn',
    'drawn',
    null,
    null,
    to_json({score: score, num_uses: num_uses, origin: parse_filename(origin)})::varchar
from draws
where run = $run and task_id = $id
order by iteration, phase, step, what
