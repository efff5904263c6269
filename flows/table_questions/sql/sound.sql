-- Questions about tables: which are kept.
-- grain:  one question, in the order they were written
-- inputs: tasks, gates (rules about the evidence), seen and unseen (comparisons of answers with the writer's, by who saw
--         the parts and who did not)
-- One wrong answer of those who see is enough, and one right answer of those who do not.
with checked as (
    select
        task_id,
        bool_and(passed) filter (where gate = 'verbatim') as verbatim,
        bool_and(passed) filter (where gate = 'covered') as covered,
        bool_and(passed) filter (where gate = 'not_given_away') as not_given_away
    from gates
    group by task_id
),
read as (
    select task_id, count(*) filter (where matched) as num_right, count(*) as num_asked
    from seen
    group by task_id
),
guessed as (
    select task_id, count(*) filter (where matched) as num_right
    from unseen
    group by task_id
)
select
    t.task_id,
    t.document_id,
    coalesce(r.num_right, 0) as num_correct,
    coalesce(r.num_asked, 0) as num_judged,
    coalesce(r.num_asked, 0) as num_rollouts,
    r.num_right / r.num_asked as mean_score,
    case
        when t.text is null then 'malformed: ' || coalesce(t.malformed, 'no reason')
        when not c.verbatim then 'a quote is not in the parts'
        when not c.covered then 'a part is not quoted'
        when not c.not_given_away then 'the question gives the answer away'
        when r.num_asked is null or r.num_right < r.num_asked then 'another answer where the parts are seen'
        when g.num_right > 0 then 'answered without the parts'
    end as reason
from tasks as t
left join checked as c using (task_id)
left join read as r using (task_id)
left join guessed as g using (task_id)
order by t.task_id;
