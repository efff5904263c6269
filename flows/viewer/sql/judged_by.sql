-- grain:  a rollout that judged this one, with its verdict
-- inputs: judgments, votes; $run, $id
select judge_rollout_id, criterion_id as about, verdict, oracle, malformed
from judgments
where run = $run and rollout_id = $id
union all
select judge_rollout_id, 'vote', vote, null, malformed
from votes
where run = $run and rollout_id = $id
order by about, judge_rollout_id
