-- SPELL, section 3.3: which questions have a responder group that the batch takes.
-- grain:  one candidate question
-- inputs: tasks (one row a candidate), scores (one row a candidate; components of the questioner's reward),
--         already (the selections of earlier rounds of this step)
-- bounds: $target, $seed
-- Zero variance of 0/1 rewards is a mean of 0 or 1, told by counts: nothing is lost to floating point.
with measured as (
    select
        t.task_id,
        t.document_id,
        t.malformed,
        s.unscorable,
        s.components['grounded'] = 1 as grounded,
        s.components['num_right']::bigint as num_correct,
        nullif(s.components['num_answers']::bigint, 0) as num_judged,
        s.components['num_answers']::bigint as num_rollouts,
        s.score as mean_score
    from tasks as t
    join scores as s using (task_id)
),
tested as (
    select
        *,
        case
            when malformed is not null then 'malformed: ' || malformed
            when not grounded then 'answered without documents'
            when unscorable is not null then unscorable
            when mean_score is null then 'not answered'
            when num_correct = 0 then 'no answer right'
            when num_correct = num_judged then 'every answer right'
        end as failing
    from measured
),
in_order as (
    select
        *,
        row_number() over (partition by failing is null order by md5(task_id || '-' || $seed::varchar), task_id) as place
    from tested
),
decided as (
    select
        * exclude (failing),
        case
            when failing is not null then failing
            when place > $target - (select count(*) from already where kept) then 'batch already full'
        end as reason
    from in_order
)
select
    task_id,
    document_id,
    reason is null as kept,
    reason,
    num_correct,
    num_judged,
    num_rollouts,
    mean_score
from decided
order by reason is not null, place, task_id;
