-- grain:  one stage in a phase of an iteration; seconds, GPU-seconds and tokens of all its tables, the largest peak
-- inputs: made (one row a published table); $run, $iteration (the last one to show)
select
    iteration,
    coalesce(phase, '(no phase)') as phase,
    stage,
    count(*) as num_tables,
    sum(num_rows)::bigint as num_rows,
    sum(seconds) as seconds,
    sum(gpu_s) as gpu_s,
    sum(tokens)::bigint as tokens,
    max(peak_memory_mb) as peak_memory_mb
from made
where run = $run and iteration <= $iteration
group by all
order by iteration, seconds desc, phase, stage;
