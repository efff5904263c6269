-- SPICE, algorithm 1 l.16: which questions the Reasoner may train on, in the order they are drawn in.
-- grain:  one attempt of a group
-- inputs: tasks (one row an attempt), rewards (one row an attempt of a group; components of the Challenger's reward)
-- bounds: $seed
-- Every valid question may be drawn, whatever its pass rate: at 0 and 1 its answers carry no signal, and are counted.
select
    t.task_id,
    t.document_id,
    r.components['num_correct']::bigint as num_correct,
    r.components['num_compared']::bigint as num_judged,
    coalesce(r.components['num_answers'], 0)::bigint as num_rollouts,
    r.score as mean_score,
    case
        when t.malformed is not null then 'invalid question'
        when r.unscorable is not null then r.unscorable
    end as reason
from tasks as t
join rewards as r using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
