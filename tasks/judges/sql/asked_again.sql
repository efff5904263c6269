-- grain:  a kind of verdict in a phase that was asked for more than once of the same answer: how often two of them agree
-- inputs: judgments, answers, votes; $run
-- A criterion is asked again where several answers to its task have the same text, a vote where an answer has several.
-- `agreement`: how often another verdict on the same answer is the same, on average over verdicts.
-- `chance`: how often two verdicts drawn from all of these are.
with texts as (
    select rollout_id, any_value(answer) as answer from answers where run = $run and answer is not null group by rollout_id
),
same as (
    select
        'criterion' as what,
        coalesce(judgments.phase, '') as phase,
        hash(judgments.criterion_id, judgments.iteration, texts.answer) as thing,
        judgments.verdict
    from judgments join texts using (rollout_id)
    where judgments.run = $run and judgments.verdict is not null
    union all
    select 'vote', coalesce(phase, ''), hash(rollout_id), vote from votes where run = $run and vote is not null
),
things as (
    select what, phase, thing, count(*) as n, sum(verdict) as yes
    from same
    group by what, phase, thing
    having count(*) > 1
)
select
    what,
    phase,
    count(*) as num_things,
    sum(n)::bigint as num_verdicts,
    count(*) filter (where yes not in (0, n)) as num_disputed,
    sum((yes * (yes - 1) + (n - yes) * (n - yes - 1)) / (n - 1)) / sum(n) as agreement,
    (sum(yes) / sum(n)) ** 2 + (1 - sum(yes) / sum(n)) ** 2 as chance
from things
group by what, phase
order by what, phase;
