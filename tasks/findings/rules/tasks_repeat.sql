-- title:         tasks repeat earlier ones
-- severity:      warning
-- sentence:      {number:%} of the tasks that iteration {iteration} wrote ({num} of {n}) repeat an earlier task word
--                for word{before}.
-- compared with: the same share in the first iteration
-- page:          documents
-- $z = 2:        standard errors of either share
-- $least = 0.15: a rise is reported above this share
-- $always = 0.5: share that is too large even if it does not rise
-- grain:         the last iteration that wrote tasks
-- inputs:        tasks; $run
-- Tasks that one step writes about one document, or on one prompt, may well be alike: they do not repeat each other.
with written as (
    select distinct
        iteration,
        task_id,
        lower(trim(text)) as text,
        (iteration, coalesce(step, 0), coalesce(document_id, prompt_id, '')) as place
    from tasks
    where run = $run and iteration is not null and rollout_id is not null and text is not null
),
first_place as (
    select text, min(place) as place from written group by text
),
placed as (
    select written.iteration, written.place != first_place.place as repeats
    from written join first_place using (text)
),
of_iteration as (
    select iteration, count(*) as n, count(*) filter (where repeats) as num
    from placed
    group by iteration
),
compared as (
    select
        max(iteration) as iteration,
        arg_max(n, iteration) as n,
        arg_max(num, iteration) as num,
        arg_min(n, iteration) as first_n,
        arg_min(num, iteration) as first_num,
        count(*) as num_iterations
    from of_iteration
)
select
    iteration,
    n,
    num,
    num / n as number,
    case when num_iterations > 1 then first_num / first_n end as compared_with,
    case when num_iterations > 1 then '; in the first iteration ' || percent(first_num / first_n) else '' end as before
from compared
where
    wilson_low(num, n, $z) > $always
    or (
        num_iterations > 1
        and wilson_low(num, n, $z) > $least
        and wilson_low(num, n, $z) > wilson_high(first_num, first_n, $z)
    );

-- rows: the texts, the most frequent first
select any_value(text) as text, count(*) as num_tasks, min(task_id) as task_id
from tasks
where run = $run and rollout_id is not null and text is not null
group by lower(trim(text))
having count(*) > 1 and max(iteration) = $iteration
order by count(*) desc, min(task_id);
