-- EAPO, section 3.3: which comparisons the reward model is fine-tuned on: those that agree with the outcomes.
-- grain:  one comparison of the evidence of a group
-- inputs: marks (one row for each answer compared, 1..5 as 0..1), rewards (the policy's; `score` is 1 for a right answer)
-- bounds: $high, $low (marks from which, and up to which, an answer should be right, and wrong)
-- Answers that do not say are no fault of the comparison: a mark between the bounds is neutral.
with judged as (
    select m.prompt_id as group_id, m.task_id, m.mark, m.mark >= $high - 1e-9 as high, m.mark <= $low + 1e-9 as low, r.score
    from marks as m
    left join rewards as r using (rollout_id)
),
counted as (
    select
        group_id,
        any_value(task_id) as task_id,
        count(mark) as num_marks,
        count(*) filter (where mark is not null and score is null) as num_unknown,
        count(*) filter (where high and score = 1) as high_right,
        count(*) filter (where high and score < 1) as high_wrong,
        count(*) filter (where low and score = 1) as low_right,
        count(*) filter (where low and score < 1) as low_wrong
    from judged
    group by group_id
)
select
    group_id,
    task_id,
    map {'high_right': high_right, 'high_wrong': high_wrong, 'low_right': low_right, 'low_wrong': low_wrong} as measures,
    case
        when num_marks = 0 then 'the comparison cannot be read'
        when num_unknown > 0 then 'an outcome is not known'
        when high_wrong > 0 then 'a high mark for a wrong answer'
        when low_right > 0 then 'a low mark for a right answer'
        when high_right = 0 then 'no high mark'
        when low_wrong = 0 then 'no low mark'
    end as reason
from counted
order by group_id;
