-- Search Self-Play: which questions the Solver gets, or the first reason why not.
-- grain:  one question that the Proposer was asked for
-- inputs: tasks, gates (a row for every rule), matches (the check with documents; no rows without it)
-- bounds: $checked (whether there is a check), $seed
with failed as (
    select task_id, min(gate) as gate
    from gates
    where not coalesce(passed, false)
    group by task_id
),
checks as (
    select
        task_id,
        count(*) as num_rollouts,
        count(matched) as num_judged,
        count(*) filter (matched) as num_correct,
        any_value(reason) as why_not_compared
    from matches
    group by task_id
)
select
    t.task_id,
    t.document_id,
    c.num_correct,
    c.num_judged,
    coalesce(c.num_rollouts, 0) as num_rollouts,
    c.num_correct / nullif(c.num_judged, 0) as mean_score,
    case
        when t.malformed is not null then 'malformed: ' || t.malformed
        when f.gate is not null then 'rule: ' || f.gate
        when $checked and coalesce(c.num_judged, 0) = 0
            then 'check: ' || coalesce(c.why_not_compared, 'no reply')
        when $checked and c.num_correct = 0 then 'check: another answer'
    end as reason
from tasks as t
left join failed as f using (task_id)
left join checks as c using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
