-- grain:  a gate, filter, rule or judge against the labels: how often it accepts what people call good, and what they do not
-- inputs: annotations, gates, selections, matches, votes, judgments, marks; $run
-- A mark of one half or more accepts.
-- One label a thing: what most of those who are sure say; none if they are divided evenly. Of a verdict, "good" says that it
-- is right.
with said as (
    select kind, subject, 2 * count(*) filter (where opinion = 'good') > count(*) as good
    from annotations
    where run = $run and opinion is not null and opinion != 'unsure'
    group by kind, subject
    having 2 * count(*) filter (where opinion = 'good') != count(*)
),
decisions as (
    select 'gate ' || gate as judge, 'task' as kind, task_id as subject, coalesce(passed, false) as accepted, null as answer
    from gates
    where run = $run
    union all
    select 'filter ' || coalesce(phase, ''), 'task', task_id, kept, null
    from selections
    where run = $run
    union all
    select 'rule', 'rollout', rollout_id, matched, null
    from matches
    where run = $run and matched is not null
    union all
    select 'majority of votes', 'rollout', rollout_id, 2 * coalesce(sum(vote), 0) > count(*), null
    from votes
    where run = $run
    group by rollout_id
    union all
    select 'verdict on a criterion', 'verdict', judge_rollout_id, verdict = 1, verdict
    from judgments
    where run = $run and verdict is not null
    union all
    select 'verdict of a vote', 'verdict', judge_rollout_id, vote = 1, vote
    from votes
    where run = $run and vote is not null
    union all
    select 'marks ' || coalesce(label, ''), 'rollout', rollout_id, avg(mark) >= 0.5, null
    from marks
    where run = $run and mark is not null and rollout_id is not null
    group by label, rollout_id
    union all
    select 'marks ' || coalesce(label, ''), 'task', task_id, avg(mark) >= 0.5, null
    from marks
    where run = $run and mark is not null and rollout_id is null
    group by label, task_id
    union all
    select 'verdict of a mark ' || coalesce(label, ''), 'verdict', judge_rollout_id, mark >= 0.5, (mark >= 0.5)::int
    from marks
    where run = $run and mark is not null
    union all
    select 'verdict of gate ' || gate, 'verdict', judge_rollout_id, passed, passed::int
    from gates
    where run = $run and passed is not null and judge_rollout_id is not null
),
compared as (
    select distinct
        decisions.judge,
        decisions.kind,
        decisions.subject,
        decisions.accepted,
        case when decisions.answer is null then said.good else said.good = decisions.accepted end as good
    from decisions
    join said using (kind, subject)
)
select
    judge,
    kind,
    count(*) as n,
    count(*) filter (where accepted and good) as good_accepted,
    count(*) filter (where accepted and not good) as bad_accepted,
    count(*) filter (where not accepted and good) as good_refused,
    count(*) filter (where not accepted and not good) as bad_refused
from compared
group by judge, kind
order by kind, judge
