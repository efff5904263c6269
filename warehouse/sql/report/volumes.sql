-- grain:  one kind of table in an iteration; a null iteration is the run's own
-- inputs: made (one row a published table); $run, $iteration (the last one to show)
select
    kind,
    iteration,
    count(*) as num_tables,
    sum(num_rows)::bigint as num_rows
from made
where run = $run and (iteration is null or iteration <= $iteration)
group by kind, iteration
order by kind, iteration nulls first;
