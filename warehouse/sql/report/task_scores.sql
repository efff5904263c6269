-- grain:  one role in a phase at one step
-- inputs: rewards, rollouts; $run, $iteration (the last one to show)
-- The mean is over the rollouts that have a score: tasks by how well they were answered, answers by their own.
select
    rewards.iteration,
    rewards.phase,
    rewards.step,
    played.role,
    avg(rewards.score) as mean,
    count(*) as n
from rewards
join (select distinct on (run, rollout_id) run, rollout_id, role from rollouts_table) as played
    using (run, rollout_id)
where rewards.run = $run and rewards.iteration <= $iteration and rewards.score is not null
group by all
order by rewards.phase, played.role, rewards.iteration, rewards.step;
