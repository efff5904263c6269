-- grain: what one stage asked of one model behind an API: replies, tokens, and their cost in the currency of the prices.
-- `cost` is of all its replies, `paid` without those that were paid for with another row, whose request was the same. What
-- requests without a usable reply may have cost counts towards api.max_cost alone.
create view spending as
select
    run,
    iteration,
    phase,
    step,
    label,
    role,
    policy,
    count(usage) as num_replies,
    count(*) filter (where finish_reason = 'error') as num_failed,
    count(*) filter (where usage.cached) as num_cached,
    cast(sum(usage.num_prompt_tokens) as bigint) as num_prompt_tokens,
    cast(sum(usage.num_completion_tokens) as bigint) as num_completion_tokens,
    sum(usage.cost) as cost,
    coalesce(sum(usage.cost) filter (where not usage.cached), 0) as paid
from rollouts_table
group by all
having count(usage) > 0;
