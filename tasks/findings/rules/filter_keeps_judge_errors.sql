-- title:         the difficulty filter selects the judge's errors
-- severity:      serious
-- sentence:      {number:%} of the tasks that iteration {iteration} kept ({num} of {n}) lie outside the filter's own
--                bounds according to the truth: the judge's errors let them through{before}.
-- compared with: the same share in the iterations before
-- page:          candidates
-- $z = 2:        standard errors of either share
-- $least = 0.05: the rule fires above this share
-- grain:         an iteration whose kept tasks would not be kept by the truth, the largest share first
-- inputs:        selections, judgments; $run
-- The true mean score is the stored one, corrected by what truth and verdict differ in, each verdict weighing the same.
with corrections as (
    select
        iteration,
        phase,
        task_id,
        sum(oracle - verdict) as gap
    from judgments
    where run = $run and expected is null and verdict is not null and oracle is not null
    group by iteration, phase, task_id
),
kept as (
    select
        selections.iteration,
        selections.phase,
        selections.task_id,
        selections.mean_score + corrections.gap / selections.num_judged as truth,
        try_cast(selections.bounds ->> 'low' as double) as low,
        try_cast(selections.bounds ->> 'high' as double) as high
    from selections join corrections using (iteration, phase, task_id)
    where selections.run = $run and selections.kept
),
of_iteration as (
    select
        iteration,
        phase,
        count(*) as n,
        count(*) filter (where truth not between low - 1e-9 and high + 1e-9) as num
    from kept
    where low is not null and high is not null
    group by iteration, phase
),
compared as (
    select
        *,
        sum(n) over earlier as earlier_n,
        sum(num) over earlier as earlier_num
    from of_iteration
    window earlier as (partition by phase order by iteration rows between unbounded preceding and 1 preceding)
)
select
    iteration,
    phase,
    n,
    num,
    num / n as number,
    earlier_num / earlier_n as compared_with,
    coalesce(printf(' (%d of %d before)', earlier_num::bigint, earlier_n::bigint), '') as before
from compared
where
    wilson_low(num, n, $z) > $least
    and (earlier_n is null or wilson_low(num, n, $z) > wilson_high(earlier_num, earlier_n, $z))
order by num / n desc
limit 1;

-- rows: the kept tasks with a wrong verdict, the most wrong first
select
    selections.iteration,
    selections.phase,
    selections.step,
    selections.task_id,
    selections.mean_score,
    count(*) filter (where judgments.verdict < judgments.oracle) as num_false_fails,
    count(*) filter (where judgments.verdict > judgments.oracle) as num_false_passes
from selections join judgments using (run, iteration, phase, task_id)
where
    selections.run = $run
    and selections.iteration = $iteration
    and selections.phase = $phase
    and selections.kept
    and judgments.verdict != judgments.oracle
group by all
order by count(*) desc, selections.task_id;
