-- grain: all verdicts on which a judge was asked several times, and how often two of its votes on one answer are the same.
-- Of pairs, since half of them agree by chance; a majority of n coins is larger than half, the more so the fewer they are.
-- inputs: votes; $run
with answers_judged as (
    select rollout_id, count(vote) as votes, sum(vote) as passing
    from votes
    where run = $run and iteration = 1 and vote is not null
    group by rollout_id
    having count(vote) > 1
)
select
    avg(
        (passing * (passing - 1) + (votes - passing) * (votes - passing - 1)) / (votes * (votes - 1))
    ) as agreement
from answers_judged;
