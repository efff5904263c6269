-- grain:  a judge's verdict on a rollout of the group, with what the judge said
-- inputs: judgments, votes, marks, matches, rollouts_table; $run, $ids (of the rollouts)
-- Canaries, whose verdict is known beforehand, are on no rollout of a group.
with mine as (
    select
        'criterion' as what,
        rollout_id,
        criterion_id,
        verdict::double as value,
        oracle::double as oracle,
        judge_rollout_id,
        malformed
    from judgments
    where run = $run and rollout_id in (select unnest($ids)) and expected is null
    union all
    select 'vote', rollout_id, null, vote::double, null, judge_rollout_id, malformed
    from votes
    where run = $run and rollout_id in (select unnest($ids))
    union all
    select concat_ws(' ', 'mark', label), rollout_id, null, mark, null, judge_rollout_id, malformed
    from marks
    where run = $run and rollout_id in (select unnest($ids))
    union all
    select 'rule', rollout_id, null, matched::double, null, null, reason
    from matches
    where run = $run and rollout_id in (select unnest($ids))
),
said as (
    select rollout_id as judge_rollout_id, any_value(left(reply, 2000)) as reply
    from rollouts_table
    where run = $run and rollout_id in (select judge_rollout_id from mine)
    group by rollout_id
)
select mine.*, said.reply
from mine
left join said using (judge_rollout_id)
order by mine.what, mine.criterion_id, mine.rollout_id, mine.judge_rollout_id
