-- title:         held-out questions are among the training tasks
-- severity:      serious
-- sentence:      {num} of {n} held-out questions ({number:%}) occur word for word among the training tasks{gap}.
-- compared with: nothing
-- page:          sql
-- $z = 2:        standard errors of the share
-- $least = 0.01: the rule fires above this share
-- grain:         the run, if training has held-out questions
-- inputs:        tasks, items; $run
with held_out as (
    select distinct lower(regexp_replace(trim(text), '\s+', ' ', 'g')) as text
    from tasks
    where run = $run and phase = 'benchmark' and text is not null
    union
    -- other items are a file of questions to train on
    select distinct lower(regexp_replace(trim(text), '\s+', ' ', 'g')) from items where run = $run and phase = 'benchmark'
),
training as (
    select distinct lower(regexp_replace(trim(text), '\s+', ' ', 'g')) as text
    from tasks
    where run = $run and iteration > 0 and phase != 'benchmark' and text is not null
),
counted as (
    select count(*) as n, count(*) filter (where text in (select text from training)) as num
    from held_out
)
select num, n, num / n as number, null as compared_with, '' as gap
from counted
where wilson_low(num, n, $z) > $least;

-- rows: the questions
with held_out as (
    select task_id, lower(regexp_replace(trim(text), '\s+', ' ', 'g')) as same
    from tasks
    where run = $run and phase = 'benchmark' and text is not null
    union
    select task_id, lower(regexp_replace(trim(text), '\s+', ' ', 'g')) from items where run = $run and phase = 'benchmark'
)
select tasks.iteration, tasks.phase, tasks.step, tasks.task_id, held_out.task_id as held_out_task_id, tasks.text
from tasks join held_out on held_out.same = lower(regexp_replace(trim(tasks.text), '\s+', ' ', 'g'))
where tasks.run = $run and tasks.iteration > 0 and tasks.phase != 'benchmark'
order by held_out.task_id, tasks.task_id;
