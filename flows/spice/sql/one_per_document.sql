-- SPICE, algorithm 1 l.16: which question of a document the Reasoner trains on.
-- grain:  one attempt of a group
-- inputs: tasks (one row an attempt), scores (one row an attempt of a group; components of the Challenger's reward)
-- bounds: $seed
-- Every valid question may be drawn, whatever its pass rate: at 0 and 1 its answers carry no signal, and are counted.
with measured as (
    select
        t.task_id,
        t.document_id,
        t.malformed,
        s.unscorable,
        s.components['num_correct']::bigint as num_correct,
        s.components['num_compared']::bigint as num_judged,
        coalesce(s.components['num_answers'], 0)::bigint as num_rollouts,
        s.score as mean_score
    from tasks as t
    join scores as s using (task_id)
),
tested as (
    select
        *,
        case
            when malformed is not null then 'invalid question'
            when unscorable is not null then unscorable
        end as failing
    from measured
),
drawn as (
    select
        *,
        row_number() over (
            partition by document_id, failing is null order by md5(task_id || '-' || $seed::varchar), task_id
        ) as place
    from tested
),
decided as (
    select
        * exclude (failing),
        case
            when failing is not null then failing
            when place > 1 then 'another question of its document is drawn'
        end as reason
    from drawn
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
order by reason is not null, task_id;
