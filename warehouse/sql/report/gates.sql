-- grain:  one gate of an iteration
-- inputs: gates; $run, $iteration (the last one to show)
-- A malformed verdict is not a pass: it stays in the denominator.
select
    iteration,
    gate,
    kind,
    count(*) as n,
    count(*) filter (where passed) as num_passed,
    count(malformed) as num_malformed
from gates
where run = $run and iteration <= $iteration
group by iteration, gate, kind
order by kind, gate, iteration;
