-- grain:  a table that says what became of the task, or of the rollouts about it
-- inputs: selections, groups, labels, novelties, draws, pools; $run, $id
select
    iteration,
    phase,
    step,
    'selection' as what,
    coalesce(reason, 'kept') as outcome,
    kept,
    to_json(
        {mean_score: mean_score, num_correct: num_correct, num_judged: num_judged, num_rollouts: num_rollouts, bounds: bounds}
    )::varchar as details
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
    to_json({group_id: group_id, measures: measures, bounds: bounds})::varchar
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
    to_json({cluster: cluster, share: share, nearest: nearest, similarity: similarity})::varchar
from novelties
where run = $run and task_id = $id
union all
select
    iteration,
    phase,
    step,
    'pool',
    coalesce(reason, 'in the pool'),
    kept,
    to_json({score: score, num_uses: num_uses, last_used: last_used, origin: origin})::varchar
from pools
where run = $run and task_id = $id
union all
select
    iteration,
    phase,
    step,
    'drawn',
    'drawn',
    null,
    to_json({score: score, num_uses: num_uses, origin: origin})::varchar
from draws
where run = $run and task_id = $id
order by iteration, phase, step, what
