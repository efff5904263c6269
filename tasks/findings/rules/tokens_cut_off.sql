-- title:         tokens are spent on replies that are cut off
-- severity:      warning
-- sentence:      {number:%} of the tokens that the {role} sampled in iteration {iteration} went into {num} replies
--                ({share:%}) that were cut off at the token limit.
-- compared with: the share of these replies
-- page:          rollouts
-- $z = 2:        standard errors of the share of replies
-- $least = 0.1:  minimum share of replies that are cut off
-- $most = 0.3:   the rule fires above this share of tokens
-- grain:         a role in the last iteration, the largest share of tokens first
-- inputs:        rollouts; $run
with of_role as (
    select
        iteration,
        role,
        count(*) as n,
        count(*) filter (where finish_reason in ('length', 'context')) as num,
        sum(num_sampled_tokens) as tokens,
        sum(num_sampled_tokens) filter (where finish_reason in ('length', 'context')) as cut_tokens
    from rollouts_table
    where run = $run and iteration > 0
    group by iteration, role
)
select iteration, role, num, num / n as share, cut_tokens / tokens as number, num / n as compared_with
from of_role
where
    iteration = (select max(iteration) from of_role)
    and wilson_low(num, n, $z) > $least
    and cut_tokens > $most * tokens
order by cut_tokens desc
limit 1;

-- rows: the replies, the longest first
select iteration, phase, step, rollout_id, role, finish_reason, num_sampled_tokens
from rollouts_table
where run = $run and iteration = $iteration and role = $role and finish_reason in ('length', 'context')
order by num_sampled_tokens desc, rollout_id;
