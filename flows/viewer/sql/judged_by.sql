-- grain:  a rollout that judged this one, with its verdict
-- inputs: judgments, votes; $run, $places, $id
select judge_rollout_id, criterion_id as about, verdict, oracle, malformed
from judgments
where run = $run and rollout_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
union all
select judge_rollout_id, 'vote', vote, null, malformed
from votes
where run = $run and rollout_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
order by about, judge_rollout_id
