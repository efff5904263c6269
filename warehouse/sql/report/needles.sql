-- grain:  a length and depth in an iteration
-- inputs: needles; $run, $iteration (the last one to show)
-- An answer that nobody can tell about counts as not found.
select
    iteration,
    length_tokens,
    depth,
    count(*) as n,
    count(*) filter (where correct) as num_correct,
    count(*) filter (where quoted) as num_quoted
from needles
where run = $run and iteration <= $iteration
group by iteration, length_tokens, depth
order by iteration, length_tokens, depth;
