-- grain:  a verdict on an answer to the task, by one criterion, and what the judge said
-- inputs: judgments, rollouts_table; $run, $places, $id, $characters
with mine as (
    select rollout_id, criterion_id, verdict, oracle, expected, judge_rollout_id, malformed
    from judgments
    where run = $run and task_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
),
said as (
    select rollout_id as judge_rollout_id, any_value(left(reply, $characters)) as reply
    from rollouts_table
    where
        run = $run
        and rollout_id in (select judge_rollout_id from mine)
        and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
    group by rollout_id
)
select mine.*, said.reply
from mine
left join said using (judge_rollout_id)
order by mine.rollout_id, mine.criterion_id
