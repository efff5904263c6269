-- title:         rewards rise above the truth
-- severity:      serious
-- sentence:      Answers of iteration {iteration} are scored {number:.2f} above the truth on average ({metric}, {n}
--                cases){before}.
-- compared with: the same mean in the first iteration that has it
-- page:          judge
-- $z = 4:        standard errors of the mean, and of its rise
-- $least = 0.05: the rule fires above this surplus
-- grain:         a measure of verdicts, votes or rewards minus the truth, the largest surplus first
-- inputs:        evaluations; $run
-- Verdicts on one answer are alike, so the bound is wide.
with measured as (
    select
        iteration,
        metric,
        sum(n) as n,
        sum(score * n) / sum(n) as surplus,
        sqrt(sum((n * coalesce(standard_error, 0)) ** 2)) / sum(n) as error
    from evaluations
    where
        run = $run
        and n > 1
        and regexp_matches(metric, '^(judge|vote|reward|mark)_minus_(oracle|truth)')
    group by iteration, metric
),
compared as (
    select
        metric,
        max(iteration) as iteration,
        arg_max(n, iteration)::bigint as n,
        arg_max(surplus, iteration) as surplus,
        arg_max(error, iteration) as error,
        arg_min(surplus, iteration) as first_surplus,
        arg_min(error, iteration) as first_error,
        count(*) as num_iterations
    from measured
    group by metric
)
select
    iteration,
    metric,
    n,
    surplus as number,
    case when num_iterations > 1 then first_surplus end as compared_with,
    case when num_iterations > 1 then printf('; in the first iteration %.2f', first_surplus) else '' end as before
from compared
where
    surplus - $z * error > $least
    and (num_iterations = 1 or surplus - first_surplus > $z * sqrt(error ** 2 + first_error ** 2) or first_surplus > $least)
order by surplus desc
limit 1;

-- rows: what was measured
select iteration, phase, step, benchmark, metric, n, score, standard_error
from evaluations
where run = $run and metric = $metric
order by iteration desc, phase, step;
