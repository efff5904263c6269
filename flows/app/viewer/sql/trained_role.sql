-- grain:  the role that most of an iteration's advantages are of
-- inputs: advantages, rollouts_table; $run, $iteration
select rollouts_table.role
from advantages join rollouts_table using (run, rollout_id)
where advantages.run = $run and advantages.iteration = $iteration and rollouts_table.iteration = $iteration
group by rollouts_table.role
order by count(*) desc, rollouts_table.role
limit 1
