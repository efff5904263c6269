-- How each run of the grid ended. The shares of wrong verdicts are of all verdicts of a run, however many each step had.
--
-- Grain: a run.
-- Inputs: evaluations; $runs, their names; $benchmark and $metric, the held-out score; $collapse_errors, how many standard
-- errors below the base model a score has collapsed.
with scores as (
    select run, iteration, avg(score) as score, max(standard_error) as standard_error
    from evaluations
    where run in (select unnest($runs)) and benchmark = $benchmark and metric = $metric
    group by run, iteration
),

before as (
    select run, score as base_score, standard_error as base_error from scores where iteration = 0
),

collapsed as (
    select run, min(iteration) as collapsed_at
    from scores
    join before using (run)
    where
        iteration > 0
        and score < base_score - $collapse_errors * sqrt(base_error * base_error + standard_error * standard_error)
    group by run
),

verdicts as (
    select
        run,
        sum(score * n) filter (where metric = 'verdict_error')
        / sum(n) filter (where metric = 'verdict_error') as verdict_error,
        sum(score * n) filter (where metric = 'wrong_passes')
        / sum(n) filter (where metric = 'wrong_passes') as wrong_passes
    from evaluations
    where run in (select unnest($runs)) and metric in ('verdict_error', 'wrong_passes') and score is not null
    group by run
)

select
    run,
    any_value(base_score) as before,
    max(score) filter (where iteration > 0) as best,
    arg_max(score, iteration) as last,
    arg_max(score, iteration) - any_value(base_score) as gain,
    max(iteration) as iterations,
    list([score, standard_error] order by iteration) as scores,
    any_value(collapsed_at) as collapsed_at,
    any_value(verdict_error) as verdict_error,
    any_value(wrong_passes) as wrong_passes
from scores
join before using (run)
left join collapsed using (run)
left join verdicts using (run)
group by run
order by run
