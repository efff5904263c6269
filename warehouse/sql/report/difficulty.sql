-- grain:  one bar of an iteration's histogram of candidates; bars are 0.05 wide, centred on multiples of 0.05
-- inputs: selections; $run, $iteration (the last one to show)
-- Candidates without a mean score are in no bar; `selection_reasons` counts them.
select
    iteration,
    round(mean_score * 20)::integer / 20 as centre,
    kept,
    count(*) as n,
    any_value(try_cast(bounds ->> 'low' as double)) as low,
    any_value(try_cast(bounds ->> 'high' as double)) as high
from (
    select iteration, mean_score, kept, try_cast(bounds as json) as bounds
    from selections
    where run = $run and iteration <= $iteration and mean_score is not null
)
group by iteration, centre, kept
order by iteration, centre, kept;
