-- grain:  a judge's verdict on an answer to the task, or on the task itself, and what the judge said
-- inputs: judgments, votes, marks, rollouts_table; $run, $id, $characters
with mine as (
    select
        'criterion' as what,
        rollout_id,
        criterion_id,
        verdict,
        null as mark,
        oracle,
        expected,
        judge_rollout_id,
        malformed
    from judgments
    where run = $run and task_id = $id
    union all
    select 'vote', rollout_id, null, vote, null, null, null, judge_rollout_id, malformed
    from votes
    where run = $run and task_id = $id
    union all
    select 'mark ' || coalesce(label, ''), rollout_id, null, null, mark, null, null, judge_rollout_id, malformed
    from marks
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
order by mine.rollout_id, mine.criterion_id, mine.what, mine.judge_rollout_id
