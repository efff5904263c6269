-- grain:  one role in a phase at one step
-- inputs: rewards, rollouts; $run, $iteration (the last one to show)
-- The mean is over the rollouts that have a reward; their scores are in `task_scores`.
select
    rewards.iteration,
    rewards.phase,
    rewards.step,
    played.role,
    avg(rewards.reward) as mean,
    count(*) as n
from rewards
join (select distinct on (run, rollout_id) run, rollout_id, role from rollouts_table) as played
    using (run, rollout_id)
where rewards.run = $run and rewards.iteration <= $iteration and rewards.reward is not null
group by all
order by rewards.phase, played.role, rewards.iteration, rewards.step;
