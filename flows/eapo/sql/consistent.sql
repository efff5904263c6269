-- EAPO, section 3.3: the marks that the reward model is fine-tuned on: those that agree with the outcome.
-- grain:  one answer whose evidence is marked; a comparison that cannot be read, under its prompt's id
-- inputs: marks (one row for each answer compared, 1..5 as 0..1), rewards (the policy's; `score` is 1 for a right answer)
-- bounds: $high, $low (marks from which, and up to which, an answer should be right, and wrong)
-- Answers that do not say are no fault of the comparison: a mark between the bounds is neutral.
with judged as (
    select m.rollout_id, m.prompt_id, m.task_id, m.mark, m.mark >= $high - 1e-9 as high, m.mark <= $low + 1e-9 as low, r.score
    from marks as m
    inner join rewards as r using (rollout_id)
    where m.mark is not null
),
decided as (
    select
        rollout_id,
        task_id,
        prompt_id,
        mark,
        score,
        case
            when score is null then 'the outcome is not known'
            when high and score < 1 then 'a high mark for a wrong answer'
            when low and score = 1 then 'a low mark for a right answer'
            when not high and not low then 'a mark between high and low'
        end as reason
    from judged
),
unread as (
    select prompt_id, any_value(task_id) as task_id
    from marks
    group by prompt_id
    having count(mark) = 0
)
select rollout_id as group_id, task_id, map {'mark': mark, 'right': coalesce(score, -1)} as measures, reason
from decided
union all
select prompt_id as group_id, task_id, map {} as measures, 'the comparison cannot be read' as reason
from unread
order by group_id;
