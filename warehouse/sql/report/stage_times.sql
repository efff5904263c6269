-- grain:  one stage in a phase of an iteration; seconds, of all its tables
-- inputs: made (one row a published table); $run, $iteration (the last one to show)
select
    iteration,
    coalesce(phase, '(no phase)') as phase,
    stage,
    count(*) as num_tables,
    sum(num_rows)::bigint as num_rows,
    sum(seconds) as seconds
from made
where run = $run and iteration <= $iteration
group by all
order by iteration, seconds desc, phase, stage;
