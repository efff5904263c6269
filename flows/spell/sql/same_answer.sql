-- SPELL, appendix E.5: which given questions are trained on: those that a second model answered alike, if one did.
-- grain:  one given question
-- inputs: tasks, answers (the second ones), matches (of these)
with second as (
    select answers.task_id, matches.matched, matches.reason
    from answers
    join matches using (rollout_id)
)
select
    tasks.task_id,
    tasks.document_id,
    second.matched::bigint as num_correct,
    case when second.matched is not null then 1 end as num_judged,
    (second.matched is not null)::bigint as num_rollouts,
    second.matched::double as mean_score,
    case
        when not second.matched then 'answered otherwise a second time'
        when second.reason is not null then 'not compared: ' || second.reason
    end as reason
from tasks
left join second using (task_id)
order by tasks.task_id;
