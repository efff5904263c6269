-- grain:  one role in a phase at one step
-- inputs: scores, rollouts; $run, $iteration (the last one to show)
-- The mean is over the rollouts that have a reward; their scores are in `task_scores`.
select
    scores.iteration,
    scores.phase,
    scores.step,
    played.role,
    avg(scores.total) as mean,
    count(*) as n
from scores
join (select distinct on (run, rollout_id) run, rollout_id, role from rollouts_table) as played
    using (run, rollout_id)
where scores.run = $run and scores.iteration <= $iteration and scores.total is not null
group by all
order by scores.phase, played.role, scores.iteration, scores.step;
