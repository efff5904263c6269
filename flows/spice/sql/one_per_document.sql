-- SPICE, algorithm 1 l.16: which questions the Reasoner may train on, in the order they are drawn in.
-- grain:  one attempt of a group
-- inputs: tasks (one row an attempt), scores (one row an attempt of a group; components of the Challenger's reward)
-- bounds: $seed
-- Every valid question may be drawn, whatever its pass rate: at 0 and 1 its answers carry no signal, and are counted.
select
    t.task_id,
    t.document_id,
    s.components['num_correct']::bigint as num_correct,
    s.components['num_compared']::bigint as num_judged,
    coalesce(s.components['num_answers'], 0)::bigint as num_rollouts,
    s.score as mean_score,
    case
        when t.malformed is not null then 'invalid question'
        when s.unscorable is not null then s.unscorable
    end as reason
from tasks as t
join scores as s using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
