-- grain:  a phase of an iteration: how many criteria, judged on $least answers or more, nobody or everybody meets
-- inputs: judgments; $run, $least
-- Such a criterion contrasts no two answers. `num_none_wrong` and `num_all_wrong` count those where the truth knows an exception.
with judged as (
    select
        iteration,
        coalesce(phase, '') as phase,
        criterion_id,
        count(verdict) as n,
        sum(verdict) as num_met,
        bool_or(oracle = 1) as met_in_truth,
        bool_or(oracle = 0) as failed_in_truth
    from judgments
    where run = $run and expected is null
    group by all
    having count(verdict) >= $least
)
select
    iteration,
    phase,
    count(*) as num_criteria,
    count(*) filter (where num_met = 0) as num_none,
    count(*) filter (where num_met = n) as num_all,
    count(*) filter (where num_met = 0 and met_in_truth) as num_none_wrong,
    count(*) filter (where num_met = n and failed_in_truth) as num_all_wrong
from judged
group by iteration, phase
order by iteration, phase;
