-- title:         replies that cannot be read
-- severity:      warning
-- sentence:      {number:%} of the {role}'s replies in iteration {iteration} ({num} of {n}, {phase} phase) could not be
--                read{before}. Most frequent reason: {why}.
-- compared with: the same share in the first iteration
-- page:          rollouts
-- $z = 2:        standard errors of either share
-- $least = 0.1:  a rise is reported above this share
-- $most = 0.5:   share that is too large even if it does not rise
-- $first = 0.8:  the same in a first iteration, in which a small model has yet to learn the form (it begins at about 0.6)
-- grain:         a role and phase, in its last iteration, the largest share first
-- inputs:        replies, rollouts; $run
with read as (
    select
        rollouts_table.iteration,
        coalesce(rollouts_table.phase, '') as phase,
        rollouts_table.role,
        rollouts_table.rollout_id,
        any_value(replies.malformed) as why
    from rollouts_table join replies using (run, rollout_id)
    where rollouts_table.run = $run and rollouts_table.iteration > 0
    group by all
),
of_iteration as (
    select iteration, phase, role, count(*) as n, count(why) as num, mode(why) as why
    from read
    group by all
),
compared as (
    select
        phase,
        role,
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(num, iteration) as num,
        arg_max(why, iteration) as why,
        arg_min(n, iteration) as first_n,
        arg_min(num, iteration) as first_num,
        count(*) as num_iterations
    from of_iteration
    group by phase, role
)
select
    iteration,
    phase,
    role,
    n,
    num,
    why,
    num / n as number,
    case when num_iterations > 1 then first_num / first_n end as compared_with,
    case when num_iterations > 1 then printf(' (in the first iteration %s)', percent(first_num / first_n)) else '' end as before
from compared
where
    wilson_low(num, n, $z) > case when num_iterations > 1 then $most else $first end
    or (num_iterations > 1 and wilson_low(num, n, $z) > greatest($least, wilson_high(first_num, first_n, $z)))
order by num / n desc
limit 1;

-- rows: the replies
select rollouts.iteration, rollouts.phase, rollouts.step, rollouts.rollout_id, rollouts.malformed, rollouts.finish_reason
from rollouts
where
    run = $run
    and iteration = $iteration
    and coalesce(phase, '') = $phase
    and role = $role
    and malformed is not null
order by malformed, rollout_id;
