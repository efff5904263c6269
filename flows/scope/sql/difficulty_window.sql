-- SCOPE, algorithm 1 l.24 and appendix G: which candidate tasks the Solver trains on.
-- grain:  one candidate task
-- inputs: tasks (one row a candidate), scores (one row a candidate; components of the Challenger's reward),
--         already (the selections of earlier batches)
-- bounds: $low, $high (inclusive), $min_rollouts, $tasks_per_document, $target, $seed
-- A missing mean score never passes; the bounds are met within 1e-9, so 0.2 and 0.8 are inside.
with kept_before as (
    select document_id, count(*) as num_kept from already where kept group by document_id
),
measured as (
    select
        t.task_id,
        t.document_id,
        t.malformed,
        s.unscorable,
        s.components['passed_gates'] = 1 as passed_gates,
        s.components['has_rubric'] = 1 as has_rubric,
        s.components['num_met']::bigint as num_correct,
        nullif(s.components['num_criteria']::bigint, 0) as num_judged,
        s.components['num_rollouts']::bigint as num_rollouts,
        s.score as mean_score
    from tasks as t
    join scores as s using (task_id)
),
tested as (
    select
        *,
        case
            when unscorable is not null then unscorable
            when malformed is not null then 'malformed task'
            when not passed_gates then 'failed a quality gate'
            when not has_rubric then 'no valid rubric'
            when mean_score is null or num_rollouts < $min_rollouts then 'too few graded rollouts'
            when mean_score < $low - 1e-9 then 'too hard'
            when mean_score > $high + 1e-9 then 'too easy'
        end as failing
    from measured
),
ranked as (
    select
        *,
        row_number() over (
            partition by document_id, failing is null order by md5(task_id || '-' || $seed::varchar), task_id
        ) as place_in_document
    from tested
),
one_per_document as (
    select
        r.*,
        case
            when r.failing is not null then r.failing
            when r.place_in_document + coalesce(a.num_kept, 0) > $tasks_per_document then 'another task of its document is kept'
        end as reason
    from ranked as r
    left join kept_before as a using (document_id)
),
in_order as (
    select
        *,
        row_number() over (partition by reason is null order by md5(task_id || '-' || $seed::varchar), task_id) as place
    from one_per_document
),
decided as (
    select
        * exclude (reason),
        case
            when reason is not null then reason
            when place > $target - (select coalesce(sum(num_kept), 0) from kept_before) then 'target already met'
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
