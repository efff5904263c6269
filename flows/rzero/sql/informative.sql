-- R-Zero, section 3.3: which questions the Solver trains on, or the first reason why not.
-- grain:  one candidate question
-- inputs: tasks, labels (the majority of the Solver's answers)
-- bounds: $delta, $seed
select
    t.task_id,
    t.document_id,
    l.num_agreeing as num_correct,
    l.num_readable as num_judged,
    coalesce(l.num_answers, 0) as num_rollouts,
    l.share as mean_score,
    case
        when t.malformed is not null then 'malformed: ' || t.malformed
        when l.answer is null then coalesce(l.reason, 'not answered')
        when l.share > 0.5 + $delta + 1e-9 then 'too easy'
        when l.share < 0.5 - $delta - 1e-9 then 'too hard'
    end as reason
from tasks as t
left join labels as l using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
