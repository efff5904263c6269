-- grain:  one phase of an iteration; lengths in tokens of the policy, of answers that could be read and were counted
-- inputs: answers; $run, $iteration (the last one to show)
select
    iteration,
    phase,
    count(*) as n,
    avg(answer_tokens) as mean,
    quantile_cont(answer_tokens, 0.1) as p10,
    quantile_cont(answer_tokens, 0.5) as p50,
    quantile_cont(answer_tokens, 0.9) as p90
from answers
where run = $run and iteration <= $iteration and answer is not null and answer_tokens is not null
group by iteration, phase
order by phase, iteration;
