-- SCOPE, algorithm 1 l.24 and appendix G: which candidate tasks the Solver may train on, in the order they are drawn in.
-- grain:  one candidate task
-- inputs: tasks (one row a candidate), scores (one row a candidate; components of the Challenger's reward)
-- bounds: $low, $high (inclusive), $min_rollouts, $seed
-- A missing mean score never passes; the bounds are met within 1e-9, so 0.2 and 0.8 are inside.
select
    t.task_id,
    t.document_id,
    s.components['num_met']::bigint as num_correct,
    nullif(s.components['num_criteria']::bigint, 0) as num_judged,
    s.components['num_rollouts']::bigint as num_rollouts,
    s.score as mean_score,
    case
        when s.unscorable is not null then s.unscorable
        when t.malformed is not null then 'malformed task'
        when s.components['passed_gates'] <> 1 then 'failed a quality gate'
        when s.components['has_rubric'] <> 1 then 'no valid rubric'
        when s.score is null or s.components['num_rollouts'] < $min_rollouts then 'too few graded rollouts'
        when s.score < $low - 1e-9 then 'too hard'
        when s.score > $high + 1e-9 then 'too easy'
    end as reason
from tasks as t
join scores as s using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
