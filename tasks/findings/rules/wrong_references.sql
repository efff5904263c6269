-- title:         training tasks have wrong references
-- severity:      warning
-- sentence:      {number:%} of iteration {iteration}'s {what} are wrong according to {source} ({n} checked){before}.
-- compared with: the same share in the first iteration that measures it
-- page:          candidates
-- $z = 2:        standard errors of the share
-- $least = 0.15: the rule fires above this share
-- grain:         a kind of reference, in the last iteration that measures it, the largest share first
-- inputs:        evaluations; $run
with measured as (
    select
        iteration,
        metric,
        sum(n)::bigint as n,
        sum(score * n) as num
    from evaluations
    where run = $run and n > 0 and metric in ('reference_error', 'label_error', 'gate_leak of truth', 'gate_leak of auditor')
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
    case metric
        when 'reference_error' then 'reference answers'
        when 'label_error' then 'majority labels'
        else 'tasks that passed every gate'
    end as what,
    case metric when 'gate_leak of auditor' then 'the auditor' else 'the truth' end as source,
    case when num_iterations > 1 then printf('; %s in iteration %d', percent(first_share), since) else '' end as before
from compared
where wilson_low(num, n, $z) > $least
order by num / n desc
limit 1;

-- rows: what was measured
select iteration, phase, step, benchmark, metric, n, score, standard_error
from evaluations
where run = $run and metric = $metric
order by iteration desc, phase, step;
