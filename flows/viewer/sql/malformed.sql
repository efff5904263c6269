-- grain:  one reason for which replies to a table's readers could not be read, in an iteration
-- inputs: replies, rollouts_table; $run, $iteration
select
    rollouts_table.role,
    replies.malformed as reason,
    count(*) as n
from (select distinct on (rollout_id) rollout_id, malformed from replies where run = $run) as replies
join rollouts_table using (rollout_id)
where rollouts_table.run = $run and rollouts_table.iteration is not distinct from $iteration
group by all
order by rollouts_table.role, n desc, reason
