-- grain:  a gate of a phase of an iteration: how many tasks it passed, refused, or could not be read about
-- inputs: gates; $run, $iteration
select
    phase,
    gate,
    any_value(kind) as kind,
    count(*) filter (where passed) as num_passed,
    count(*) filter (where not passed) as num_refused,
    count(*) filter (where passed is null) as num_unread
from gates
where run = $run and iteration is not distinct from $iteration
group by phase, gate
order by phase, gate
