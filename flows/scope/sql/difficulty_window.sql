-- SCOPE, algorithm 1 l.24 and appendix G: which candidate tasks the Solver may train on, in the order they are drawn in.
-- grain:  one candidate task
-- inputs: tasks (one row a candidate), rewards (one row a candidate; components of the Challenger's reward)
-- bounds: $low, $high (inclusive), $min_rollouts, $seed
-- A missing mean score never passes; the bounds are met within 1e-9, so 0.2 and 0.8 are inside.
select
    t.task_id,
    t.document_id,
    r.components['num_met']::bigint as num_correct,
    nullif(r.components['num_criteria']::bigint, 0) as num_judged,
    r.components['num_rollouts']::bigint as num_rollouts,
    r.score as mean_score,
    case
        when r.unscorable is not null then r.unscorable
        when t.malformed is not null then 'malformed task'
        when r.components['passed_gates'] <> 1 then 'failed a quality gate'
        when r.components['has_rubric'] <> 1 then 'no valid rubric'
        when r.score is null or r.components['num_rollouts'] < $min_rollouts then 'too few graded rollouts'
        when r.score < $low - 1e-9 then 'too hard'
        when r.score > $high + 1e-9 then 'too easy'
    end as reason
from tasks as t
join rewards as r using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
