-- grain: a judge's verdict beside one standard that it can be held against: `truth` (the true facts of a built-in world),
-- `canary` (an answer of known verdict), `label` (what most people say of the verdict, if they are not divided evenly), `rule`
-- (a comparison with the reference) or `auditor` (a second judge of tasks that passed). `what` is criterion, vote, or the gate.
-- `verdict` is null if unreadable; `truth` is what the standard says, 1 or 0.
create view verdicts as
with given as (
    select
        run,
        iteration,
        phase,
        step,
        case when expected is null then 'criterion' else 'canary' end as what,
        judge_rollout_id,
        task_id,
        rollout_id,
        criterion_id,
        verdict,
        oracle,
        expected
    from judgments
    union all
    select run, iteration, phase, step, 'vote', judge_rollout_id, task_id, rollout_id, null, vote, null, null from votes
    union all
    select run, iteration, phase, step, 'gate ' || gate, judge_rollout_id, task_id, null, null, passed::int, null, null
    from gates
    where judge_rollout_id is not null and gate != 'auditor'
),
said as (
    select run, subject as judge_rollout_id, 2 * count(*) filter (where opinion = 'good') > count(*) as good
    from annotations
    where kind = 'verdict' and opinion is not null and opinion != 'unsure'
    group by run, subject
    having 2 * count(*) filter (where opinion = 'good') != count(*)
),
compared as (
    select run, rollout_id, any_value(matched) as matched from matches where matched is not null group by run, rollout_id
),
audits as (
    select run, task_id, bool_and(passed) as passed
    from gates
    where gate = 'auditor' and passed is not null
    group by run, task_id
)
select given.* exclude (oracle, expected), 'truth' as standard, given.oracle as truth
from given
where given.oracle is not null and given.expected is null
union all
select given.* exclude (oracle, expected), 'canary', given.expected
from given
where given.expected is not null
union all
select given.* exclude (oracle, expected), 'label', case when said.good then given.verdict else 1 - given.verdict end
from given join said using (run, judge_rollout_id)
where given.verdict is not null
union all
select given.* exclude (oracle, expected), 'rule', compared.matched::int
from given join compared using (run, rollout_id)
where given.what = 'vote'
union all
select given.* exclude (oracle, expected), 'auditor', audits.passed::int
from given join audits using (run, task_id)
where given.what like 'gate %' and given.verdict = 1;
