-- grain:  a rollout that judged this one, with its verdict and what it said
-- inputs: judgments, votes, marks, rollouts_table; $run, $id
with judged as (
    select judge_rollout_id, criterion_id as about, verdict, null as mark, oracle, malformed
    from judgments
    where run = $run and rollout_id = $id
    union all
    select judge_rollout_id, 'vote', vote, null, null, malformed
    from votes
    where run = $run and rollout_id = $id
    union all
    select judge_rollout_id, 'mark ' || coalesce(label, ''), null, mark, null, malformed
    from marks
    where run = $run and rollout_id = $id
),

said as (
    select rollout_id as judge_rollout_id, any_value(left(reply, 300)) as reply
    from rollouts_table
    where run = $run and rollout_id in (select judge_rollout_id from judged)
    group by rollout_id
)

select judged.*, said.reply
from judged
left join said using (judge_rollout_id)
order by about, judge_rollout_id
