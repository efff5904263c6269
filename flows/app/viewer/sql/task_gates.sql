-- grain:  a check of the task, and what the judge said where a model checked
-- inputs: gates, rollouts_table; $run, $id, $characters
with mine as (
    select gate, kind, passed, judge_rollout_id, malformed
    from gates
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
order by mine.kind, mine.gate
