-- grain:  one iteration; `wall_s` is from the start of its first stage to the end of its last, s
-- inputs: made (one row a published table); $run, $iteration (the last one to show)
-- Stages run one after another, so what is left of the wall is the time between them.
select
    iteration,
    max(started_at + seconds) - min(started_at) as wall_s,
    sum(seconds) filter (where stage = 'generate') as generation_s,
    sum(seconds) filter (where stage = 'update') as update_s,
    sum(seconds) filter (where stage not in ('generate', 'update')) as other_s
from made
where run = $run and iteration <= $iteration
group by iteration
order by iteration;
