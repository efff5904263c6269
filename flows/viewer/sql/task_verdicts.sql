-- grain:  a verdict on an answer to the task, by one criterion, and what the judge said
-- inputs: judgments, rollouts_table; $run, $id, $characters
with mine as (
    select rollout_id, criterion_id, verdict, oracle, expected, judge_rollout_id, malformed
    from judgments
    where run = $run and task_id = $id
),
said as (
    select rollout_id as judge_rollout_id, any_value(left(reply, $characters)) as reply
    from rollouts_table
    where
        run = $run
        and rollout_id in (select judge_rollout_id from mine)
    group by rollout_id
)
select mine.*, said.reply
from mine
left join said using (judge_rollout_id)
order by mine.rollout_id, mine.criterion_id
