-- title:         one answer to most questions
-- severity:      serious
-- sentence:      In iteration {iteration}, {answer!r} is the label of {number:%} of a step's questions ({num} of
--                {n}){before}: the policy is rewarded for one answer, whatever the question.
-- compared with: the most frequent label of the first step
-- page:          sql
-- $z = 2:        standard errors of the share
-- $least = 0.5:  the rule fires above this share
-- grain:         the step with the largest share of its most frequent label
-- inputs:        labels; $run
-- A label is the answer that most replies to a question agree on, so a policy that gives each the same answer agrees with itself.
with texts as (
    select
        iteration,
        coalesce(step, 0) as step,
        label,
        answer,
        trim(regexp_replace(lower(answer), '\W+', ' ', 'g')) as text
    from labels
    where run = $run and answer is not null
),
counted as (
    select iteration, step, label, text, any_value(answer) as answer, count(*) as num
    from texts
    group by iteration, step, label, text
),
of_step as (
    select
        iteration,
        step,
        label,
        arg_max(text, (num, text)) as text,
        arg_max(answer, (num, text)) as answer,
        max(num) as num,
        sum(num)::bigint as n
    from counted
    group by iteration, step, label
),
compared as (
    select
        *,
        first_value(num / n) over in_order as first_share,
        row_number() over in_order as place
    from of_step
    window in_order as (order by iteration, step, label)
)
select
    iteration,
    step,
    text,
    answer,
    n,
    num,
    num / n as number,
    case when place > 1 then first_share end as compared_with,
    case
        when place > 1 then printf('; in the first step the most frequent label had %s', percent(first_share))
        else ''
    end as before
from compared
where wilson_low(num, n, $z) > $least
order by num / n desc, place
limit 1;

-- rows: the questions of that step, those with that label first
select
    labels.answer,
    (select any_value(text) from tasks where run = $run and task_id = labels.task_id) as question,
    labels.num_agreeing,
    labels.num_readable,
    labels.task_id
from labels
where
    labels.run = $run
    and labels.iteration = $iteration
    and coalesce(labels.step, 0) = $step
order by
    trim(regexp_replace(lower(labels.answer), '\W+', ' ', 'g')) = $text desc,
    labels.num_agreeing desc,
    labels.task_id;
