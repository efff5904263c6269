-- grain:  one other measurement of a step
-- inputs: measurements; $run, $parts (the steps in order)
select part as step, metric, value from measurements
where run = $run and metric not in ('rows_in', 'rows_out', 'cpu_s', 'peak_memory_mb')
order by list_position($parts, part), part, metric;
