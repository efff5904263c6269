-- title:         the reward pays for length
-- severity:      warning
-- sentence:      Longer replies of the {role} earn more, and replies are growing: in iteration {iteration} the
--                correlation between length and advantage within groups is {number:.2f} ({n} replies;
--                {compared_with:.2f} in the first iteration), and the mean length rose from {length_before:.0f} to
--                {length_now:.0f} tokens.
-- compared with: the correlation in the first iteration
-- page:          rollouts
-- $least = 0.3:  correlation that the lower bound must exceed
-- $growth = 1.5:  the rule fires above this growth of the mean length since the first iteration
-- $z = 3:        standard errors of Fisher's transform
-- grain:         a trained role whose longer replies earn more in its last iteration, the largest correlation first
-- inputs:        advantages, rollouts; $run
-- Replies that could not be read are left out: what is cut off earns nothing whatever its length. Where right answers happen to
-- be longer than wrong ones the correlation is high from the first, but replies do not grow.
with in_groups as (
    select
        advantages.iteration,
        rollouts_table.role,
        advantages.advantage,
        num_sampled_tokens as length,
        num_sampled_tokens - avg(num_sampled_tokens) over (partition by advantages.group_id) as longer
    from advantages
    join rollouts_table using (run, rollout_id)
    where
        advantages.run = $run
        and advantages.reward is not null
        and advantages.iteration is not null
        and rollout_id in (select rollout_id from replies where run = $run and malformed is null)
),
paid as (
    select
        iteration,
        role,
        count(*) as n,
        avg(length) as length,
        corr(advantage, longer) as correlation
    from in_groups
    where advantage != 0
    group by iteration, role
    having count(*) > 30
),
compared as (
    select
        role,
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(correlation, iteration) as correlation,
        arg_min(correlation, iteration) as first,
        arg_max(length, iteration) as length,
        arg_min(length, iteration) as first_length
    from paid
    where isfinite(correlation)
    group by role
    having count(*) > 1
)
select
    iteration,
    role,
    n,
    correlation as number,
    first as compared_with,
    first_length as length_before,
    length as length_now
from compared
where length > $growth * first_length and tanh(atanh(least(correlation, 0.9999)) - $z / sqrt(n - 3)) > $least
order by correlation desc
limit 1;

-- rows: the longest replies with a positive advantage
select advantages.iteration, advantages.phase, advantages.step, rollout_id, group_id, num_sampled_tokens, advantage
from advantages join rollouts_table using (run, rollout_id)
where advantages.run = $run and advantages.iteration = $iteration and rollouts_table.role = $role and advantage > 0
order by num_sampled_tokens desc, rollout_id;
