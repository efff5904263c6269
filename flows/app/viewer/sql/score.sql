-- grain:  a score of a rollout
-- inputs: scores; $run, $id
select distinct scored_by, score, unscored
from scores
where run = $run and rollout_id = $id
order by all
