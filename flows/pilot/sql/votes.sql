-- grain: all verdicts on which a judge was asked several times, and how often one vote is that of the majority.
-- inputs: votes; $run
with answers_judged as (
    select rollout_id, count(vote) as votes, avg(vote) as share
    from votes
    where run = $run and iteration = 1 and vote is not null
    group by rollout_id
    having count(vote) > 1
)
select avg(greatest(share, 1 - share)) as agreement
from answers_judged;
