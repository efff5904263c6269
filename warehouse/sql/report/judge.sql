-- grain:  one standard of truth in an iteration: `oracle` (true facts) or `canary` (answers of known verdict)
-- inputs: judgments; $run, $iteration (the last one to show)
-- An unreadable verdict on a canary is wrong; one on an answer is left out and counted.
-- `surplus` is the mean of verdict minus truth.
with known as (
    select
        iteration,
        case when expected is null then 'oracle' else 'canary' end as truth_of,
        verdict,
        coalesce(expected, oracle) as truth
    from judgments
    where run = $run and iteration <= $iteration and coalesce(expected, oracle) is not null
)
select
    iteration,
    truth_of,
    count(*) filter (where truth_of = 'canary' or verdict is not null) as n,
    count(*) filter (where verdict = truth) as num_right,
    count(*) filter (where verdict > truth) as num_false_pass,
    count(*) filter (where verdict < truth) as num_false_fail,
    count(*) filter (where verdict is null) as num_unread,
    avg(verdict - truth) as surplus
from known
group by iteration, truth_of
order by truth_of desc, iteration;
