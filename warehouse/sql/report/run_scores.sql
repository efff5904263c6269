-- grain:  one measurement of a benchmark in an iteration of a run
-- inputs: evaluations; $runs
select run, benchmark, iteration, score
from evaluations
where metric = 'score' and list_contains($runs, run)
order by benchmark, iteration;
