-- grain:  one reason of an iteration; `kept` is one of them
-- inputs: selections; $run, $iteration (the last one to show)
select
    iteration,
    case when kept then 'kept' else reason end as reason,
    count(*) as n,
    count(mean_score) as num_scored
from selections
where run = $run and iteration <= $iteration
group by all
order by iteration, n desc, reason;
