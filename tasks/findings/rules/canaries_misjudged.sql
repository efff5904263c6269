-- title:         the judge is wrong on answers whose verdict is known
-- severity:      serious
-- sentence:      The judge is wrong on {number:%} of the canaries of iteration {iteration} ({num} of {n}){before}.
-- compared with: the same share in the first iteration
-- page:          judge
-- $z = 2:        standard errors of either share
-- $least = 0.05: the rule fires above this share
-- grain:         the last iteration that shows canaries
-- inputs:        judgments; $run
with of_iteration as (
    select iteration, count(*) as n, count(*) filter (where verdict is distinct from expected) as num
    from judgments
    where run = $run and expected is not null
    group by iteration
),
compared as (
    select
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(num, iteration) as num,
        arg_min(n, iteration) as first_n,
        arg_min(num, iteration) as first_num,
        count(*) as num_iterations
    from of_iteration
)
select
    iteration,
    n,
    num,
    num / n as number,
    case when num_iterations > 1 then first_num / first_n end as compared_with,
    case
        when num_iterations > 1 then '; in the first iteration on ' || percent(first_num / first_n)
        else ''
    end as before
from compared
where wilson_low(num, n, $z) > $least;

-- rows: the canaries that were misjudged
select iteration, phase, step, rollout_id, task_id, criterion_id, judge_rollout_id, verdict, expected
from judgments
where run = $run and iteration = $iteration and expected is not null and verdict is distinct from expected
order by criterion_id;
