-- SPELL, appendix E.5: which given questions are trained on: those that a second model answered alike, if one did,
-- and whose answer is no longer than a reply may be.
-- grain:  one given question
-- inputs: tasks, answers (the second ones), matches (of these)
-- bounds: $most_words of a reply (null: any number)
with second as (
    select answers.task_id, matches.matched, matches.reason
    from answers
    join matches using (rollout_id)
),

sized as (
    select
        task_id,
        list_min(list_transform(
            list_append(coalesce(accepted, []), reference),
            lambda answer: len(string_split_regex(trim(answer), '\s+'))
        )) as num_words
    from tasks
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
        when sized.num_words > $most_words then 'the answer has more than ' || $most_words || ' words'
    end as reason
from tasks
join sized using (task_id)
left join second using (task_id)
order by tasks.task_id;
