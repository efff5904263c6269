-- title:         groups without contrast teach nothing
-- severity:      warning
-- sentence:      {number:%} of the groups that iteration {iteration} rewarded in the {phase} phase ({num} of {n}) have
--                no contrast: all their rewards are equal, and they teach nothing ({before}).
-- compared with: the same share in the first iteration
-- page:          rollouts
-- $z = 2:        standard errors of either share
-- $most = 0.5:   share of flat groups that is still fine, unless it was as large from the first
-- $always = 0.8: share of flat groups that is too large in any case
-- grain:         a phase whose share of flat groups is too large in the last iteration that has it
-- inputs:        advantages; $run
with rewarded as (
    select iteration, phase, step, group_id, max(abs(advantage)) = 0 as flat
    from advantages
    where run = $run and reward is not null and iteration is not null
    group by iteration, phase, step, group_id
    having count(*) > 1
),
of_phase as (
    select iteration, coalesce(phase, '') as phase, count(*) as n, count(*) filter (where flat) as num
    from rewarded
    group by all
),
compared as (
    select
        phase,
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(num, iteration) as num,
        arg_min(n, iteration) as first_n,
        arg_min(num, iteration) as first_num,
        count(*) as num_iterations
    from of_phase
    group by phase
)
select
    iteration,
    phase,
    n,
    num,
    num / n as number,
    case when num_iterations > 1 then first_num / first_n end as compared_with,
    case
        when num_iterations > 1 then percent(first_num / first_n) || ' in the first iteration'
        else 'it is the first iteration'
    end as before
from compared
where
    wilson_low(num, n, $z) > $always
    or (
        num_iterations > 1
        and wilson_low(num, n, $z) > $most
        and wilson_low(num, n, $z) > wilson_high(first_num, first_n, $z)
    )
order by num / n desc
limit 1;

-- rows: the flat groups
select iteration, phase, step, group_id, any_value(task_id) as task_id, count(*) as num_rollouts, any_value(reward) as reward
from advantages
where run = $run and iteration = $iteration and coalesce(phase, '') = $phase and reward is not null
group by iteration, phase, step, group_id
having count(*) > 1 and max(abs(advantage)) = 0
order by step, group_id;
