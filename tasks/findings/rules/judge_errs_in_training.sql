-- title:         the judge errs on what is trained on
-- severity:      serious
-- sentence:      The judge is wrong on {number:%} of the verdicts that iteration {iteration}'s {phase} updates trained
--                on{before}: {num_wrong} of {n}, in {num_tasks} tasks; {weighted:%} weighted by |advantage|.
-- compared with: the same share in the iterations before
-- page:          judge
-- $z = 2:        standard errors of either share
-- $least = 0.02: minimum share of criteria judged wrongly
-- grain:         a phase of an iteration in which the judge errs on what is trained on, the largest share first
-- inputs:        judgments, batches; $run
-- Equal answers are judged alike: a criterion counts once, as wrong if any verdict on it is.
with trained as (
    select rollout_id, max(abs(advantage)) as weight from batches where run = $run group by rollout_id
),
verdicts as (
    select
        judgments.iteration,
        judgments.phase,
        judgments.task_id,
        judgments.criterion_id,
        trained.weight,
        judgments.verdict != judgments.oracle as wrong
    from judgments join trained using (rollout_id)
    where judgments.run = $run and judgments.verdict is not null and judgments.oracle is not null
),
of_phase as (
    select
        iteration,
        phase,
        count(*) as n,
        count(*) filter (where wrong) as num_wrong,
        count(distinct criterion_id) as criteria,
        count(distinct criterion_id) filter (where wrong) as num_criteria,
        count(distinct task_id) filter (where wrong) as num_tasks,
        sum(weight) filter (where wrong) / nullif(sum(weight), 0) as weighted
    from verdicts
    group by iteration, phase
),
compared as (
    select
        *,
        sum(n) over earlier as earlier_n,
        sum(num_wrong) over earlier as earlier_wrong,
        sum(criteria) over earlier as earlier_criteria,
        sum(num_criteria) over earlier as earlier_num_criteria
    from of_phase
    window earlier as (partition by phase order by iteration rows between unbounded preceding and 1 preceding)
)
select
    iteration,
    phase,
    n,
    num_wrong,
    num_criteria,
    num_tasks,
    coalesce(weighted, 0) as weighted,
    num_wrong / n as number,
    earlier_wrong / earlier_n as compared_with,
    coalesce(printf(' (%s before)', percent(earlier_wrong / earlier_n)), '') as before
from compared
where
    wilson_low(num_criteria, criteria, $z) > $least
    and (earlier_n is null or wilson_low(num_criteria, criteria, $z) > wilson_high(earlier_num_criteria, earlier_criteria, $z))
order by num_wrong / n desc
limit 1;

-- rows: the wrong verdicts, those on the most reinforced answers first
select
    judgments.iteration,
    judgments.phase,
    judgments.step,
    judgments.rollout_id,
    judgments.task_id,
    judgments.criterion_id,
    judgments.judge_rollout_id,
    judgments.verdict,
    judgments.oracle,
    batches.advantage
from judgments join (select distinct run, rollout_id, advantage from batches) as batches using (run, rollout_id)
where
    judgments.run = $run
    and judgments.iteration = $iteration
    and judgments.phase is not distinct from $phase
    and judgments.verdict != judgments.oracle
order by abs(batches.advantage) desc, judgments.rollout_id, judgments.criterion_id;
