-- grain:  one step of the preparation: rows in and out, CPU seconds, peak memory
-- inputs: measurements; $run, $parts (the steps in order)
select
    part as step,
    max(value) filter (where metric = 'rows_in') as rows_in,
    max(value) filter (where metric = 'rows_out') as rows_out,
    max(value) filter (where metric = 'cpu_s') as cpu_s,
    max(value) filter (where metric = 'peak_memory_mb') as peak_memory_mb
from measurements where run = $run group by part order by list_position($parts, part), part;
