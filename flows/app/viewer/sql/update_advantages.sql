-- grain:  one of 24 bins of equal width over the advantages of the update's batch, the lowest first; empty ones too
-- inputs: batches; $run, $iteration, $phase, $step
-- `low` and `high` are the smallest and largest advantage in the bin, null in an empty one.
with mine as (
    select advantage
    from batches
    where
        run = $run
        and iteration is not distinct from $iteration
        and ($phase is null or phase = $phase)
        and step is not distinct from $step
),
bounds as (
    select min(advantage) as lowest, (max(advantage) - min(advantage)) / 24 as width from mine
),
placed as (
    select
        advantage,
        case when width > 0 then least(23, floor((advantage - lowest) / width))::int else 0 end as bin
    from mine, bounds
),
counted as (
    select bin, count(*) as num, min(advantage) as low, max(advantage) as high from placed group by bin
)
select bins.bin, coalesce(counted.num, 0) as num, counted.low, counted.high
from range(0, 24) as bins (bin)
left join counted on counted.bin = bins.bin
where exists (select 1 from mine)
order by bins.bin
