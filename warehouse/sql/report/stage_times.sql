-- grain:  one stage in a phase of an iteration; seconds, GPU-seconds and tokens of all its tables, the largest peak
-- inputs: $made (JSON, one object a published table), $run, $iteration (the last one to show)
with made as (
    select unnest(
        from_json(
            $made,
            '[{"run": "VARCHAR", "iteration": "INTEGER", "phase": "VARCHAR", "stage": "VARCHAR", "num_rows": "BIGINT",
               "seconds": "DOUBLE", "gpu_s": "DOUBLE", "tokens": "BIGINT", "peak_memory_mb": "DOUBLE"}]'
        )
    ) as one
)
select
    one.iteration,
    coalesce(one.phase, '(no phase)') as phase,
    one.stage,
    count(*) as num_tables,
    sum(one.num_rows)::bigint as num_rows,
    sum(one.seconds) as seconds,
    sum(one.gpu_s) as gpu_s,
    sum(one.tokens)::bigint as tokens,
    max(one.peak_memory_mb) as peak_memory_mb
from made
where one.run = $run and one.iteration <= $iteration
group by one.iteration, one.phase, one.stage
order by one.iteration, seconds desc, phase, one.stage;
