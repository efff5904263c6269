-- title:         a held-out score falls
-- severity:      serious
-- sentence:      The score on {benchmark} fell from {compared_with:.3f} ± {first_error:.3f} in iteration {since} to
--                {number:.3f} ± {error:.3f} in iteration {iteration}{meanwhile}.
-- compared with: the best earlier score on the same benchmark
-- page:          overview
-- $z = 3:        standard errors of the difference, as if the two scores were of different questions
-- grain:         a benchmark whose last score is below an earlier one, the largest fall first
-- inputs:        evaluations, advantages; $run
with scores as (
    select iteration, benchmark, sum(score * n) / sum(n) as score, max(standard_error) as error
    from evaluations
    where
        run = $run
        and metric = 'score'
        and is_held_out(phase, benchmark)
        and standard_error is not null
        and n > 0
    group by iteration, benchmark
),
compared as (
    select
        benchmark,
        max(iteration) as iteration,
        arg_max(score, iteration) as last,
        arg_max(error, iteration) as error,
        max(score) as best,
        arg_max(error, score) as first_error,
        arg_max(iteration, score) as since
    from scores
    group by benchmark
),
fallen as (
    select
        compared.*,
        greatest(since, (select min(iteration) from advantages where run = $run and reward is not null)) as paid_since
    from compared
    where best - last > $z * sqrt(error ** 2 + first_error ** 2)
),
paid as (
    select iteration, avg(reward) as reward
    from advantages
    where
        run = $run
        and reward is not null
        and iteration in (
            select iteration from fallen
            union all
            select paid_since from fallen
        )
        and rollout_id in (select rollout_id from answers where run = $run)
    group by iteration
)
select
    fallen.iteration,
    benchmark,
    since,
    last as number,
    best as compared_with,
    error,
    first_error,
    coalesce(
        case
            when now.reward > before.reward
                then printf(', while the mean reward of training answers rose from %.2f to %.2f', before.reward, now.reward)
        end,
        ''
    ) as meanwhile
from fallen
left join paid as now using (iteration)
left join paid as before on before.iteration = fallen.paid_since
order by (best - last) / sqrt(error ** 2 + first_error ** 2) desc
limit 1;

-- rows: the scores of that benchmark
select iteration, policy, benchmark, metric, n, score, standard_error
from evaluations
where run = $run and benchmark = $benchmark and metric = 'score' and is_held_out(phase, benchmark)
order by iteration;
