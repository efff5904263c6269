-- title:         rewards are hardly better than chance
-- severity:      serious
-- sentence:      In iteration {iteration}, {what} are wrong on {number:%} of the {n} answers checked against the
--                truth{before}; chance would be 50%.
-- compared with: the same share in the first iteration that measures it
-- page:          judge
-- $z = 2:        standard errors of the share
-- $least = 0.42: the rule fires above this share (measured: data/bench/README.md, "The phase diagram")
-- grain:         a measure of rewards, votes or verdicts against the truth, in the last iteration that has it, the largest first
-- inputs:        evaluations; $run
-- A judge may err as often upwards as downwards, so that its mean looks right.
with measured as (
    select
        iteration,
        metric,
        sum(n)::bigint as n,
        sum(score * n) as num
    from evaluations
    where run = $run and n > 0 and iteration > 0 and metric in ('reward_error', 'vote_error', 'verdict_error')
    group by iteration, metric
),
compared as (
    select
        metric,
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(num, iteration) as num,
        min(iteration) as since,
        arg_min(num / n, iteration) as first_share,
        count(*) as num_iterations
    from measured
    group by metric
)
select
    iteration,
    metric,
    n,
    num / n as number,
    case when num_iterations > 1 then first_share end as compared_with,
    case metric when 'reward_error' then 'rewards' when 'vote_error' then 'votes' else 'verdicts' end as what,
    case when num_iterations > 1 then printf('; %s in iteration %d', percent(first_share), since) else '' end as before
from compared
where wilson_low(num, n, $z) > $least
order by num / n desc, metric
limit 1;

-- rows: what was measured
select iteration, phase, step, benchmark, metric, n, score, standard_error
from evaluations
where run = $run and metric = $metric
order by iteration desc, phase, step;
