-- R-Zero, section 3.3: which questions the Solver trains on, or the first reason why not.
-- grain: one candidate question    inputs: tasks, labels    bounds: $delta, $seed
select
    task_id,
    tasks.document_id,
    reason is null as kept,
    reason,
    num_agreeing as num_correct,
    num_readable as num_judged,
    coalesce(num_answers, 0) as num_rollouts,
    share as mean_score
from (
    select
        *,
        case
            when tasks.malformed is not null then 'malformed question'
            when labels.answer is null then coalesce(labels.reason, 'not answered')
            when share > 0.5 + $delta + 1e-9 then 'too easy'
            when share < 0.5 - $delta - 1e-9 then 'too hard'
        end as reason
    from tasks left join labels using (task_id)
)
order by reason is not null, md5(task_id || '-' || $seed::varchar), task_id;
