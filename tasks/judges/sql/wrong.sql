-- grain:  a verdict that a standard contradicts, those on the most reinforced answers first
-- inputs: verdicts (a view), rubrics, advantages, batches, rollouts; $run, $most
with wrong as (
    select * from verdicts where run = $run and verdict is distinct from truth
),
paid as (
    select rollout_id, any_value(group_id) as group_id, any_value(advantage) as advantage, any_value(reward) as reward
    from advantages
    where run = $run and rollout_id in (select rollout_id from wrong)
    group by rollout_id
),
trained as (
    select distinct rollout_id from batches where run = $run
),
criteria as (
    select criterion_id, any_value(criterion) as criterion, any_value(priority) as priority
    from rubrics
    where run = $run and criterion_id in (select criterion_id from wrong)
    group by criterion_id
)
select
    wrong.iteration,
    wrong.phase,
    wrong.step,
    wrong.what,
    wrong.standard,
    wrong.verdict,
    wrong.truth,
    wrong.task_id,
    wrong.rollout_id,
    paid.group_id,
    wrong.criterion_id,
    wrong.judge_rollout_id,
    criteria.criterion,
    criteria.priority,
    paid.advantage,
    paid.reward,
    trained.rollout_id is not null as trained_on
from wrong
left join paid using (rollout_id)
left join trained using (rollout_id)
left join criteria using (criterion_id)
order by
    trained.rollout_id is not null desc,
    abs(paid.advantage) desc nulls last,
    wrong.rollout_id,
    wrong.criterion_id,
    wrong.standard
limit $most;
