-- title:         replies grow longer
-- severity:      note
-- sentence:      Replies of the {role} grew from {compared_with:.0f} to {number:.0f} tokens on average between iterations
--                {since} and {iteration} ({phase} phase){gain}.
-- compared with: the mean of the first iteration in the same phase
-- page:          rollouts
-- $most = 1.8:   growth that is still fine
-- $z = 4:        standard errors of the difference
-- $enough = 30:  replies in either iteration
-- grain:         a trained role and phase whose replies have grown, the largest growth first
-- inputs:        rollouts, updates, advantages; $run
-- The correlation is of length and advantage within the groups of the last iteration.
with lengths as (
    select iteration, coalesce(phase, '') as phase, role, num_sampled_tokens as length
    from rollouts_table
    where
        run = $run
        and iteration is not null
        and finish_reason != 'error'
        and role in (select role from updates where run = $run)
),
of_iteration as (
    select iteration, phase, role, count(*) as n, avg(length) as mean, stddev_samp(length) / sqrt(count(*)) as error
    from lengths
    group by all
    having count(*) >= $enough
),
compared as (
    select
        phase,
        role,
        min(iteration) as since,
        max(iteration) as iteration,
        arg_min(mean, iteration) as first,
        arg_max(mean, iteration) as last,
        arg_min(error, iteration) as first_error,
        arg_max(error, iteration) as error
    from of_iteration
    group by phase, role
    having count(*) > 1
),
grown as (
    select * from compared where last > $most * first and last - first > $z * sqrt(error ** 2 + first_error ** 2)
),
in_groups as (
    select
        advantages.iteration,
        rollouts_table.role,
        advantages.advantage,
        num_sampled_tokens - avg(num_sampled_tokens) over (partition by advantages.group_id) as longer
    from advantages join rollouts_table using (run, rollout_id)
    where advantages.run = $run and advantages.reward is not null and advantages.iteration in (select iteration from grown)
),
paid as (
    select iteration, role, corr(advantage, longer) as correlation
    from in_groups
    group by iteration, role
)
select
    grown.iteration,
    grown.since,
    grown.phase,
    grown.role,
    grown.last as number,
    grown.first as compared_with,
    coalesce(printf('; within groups the correlation of length and advantage is %+.2f', paid.correlation), '') as gain
from grown left join paid using (iteration, role)
order by grown.last / grown.first desc
limit 1;

-- rows: the longest replies
select iteration, phase, step, rollout_id, role, num_sampled_tokens, finish_reason
from rollouts_table
where run = $run and iteration = $iteration and coalesce(phase, '') = $phase and role = $role
order by num_sampled_tokens desc, rollout_id;
