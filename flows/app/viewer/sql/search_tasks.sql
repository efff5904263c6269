-- grain:  a task in whose text or reference answer the pattern matches, with its first match; or that has the text as its id
-- inputs: tasks; $run, $text, $pattern
with in_run as (
    select *, concat_ws(chr(10), text, reference) as whole
    from tasks
    where $run = '' or run = $run
)

select
    run,
    iteration,
    phase,
    step,
    task_id,
    whole as text,
    regexp_extract(whole, '^((?s:.*?))(' || $pattern || ')', ['before', 'match']) as found
from in_run
where regexp_matches(whole, $pattern) or task_id = $text
limit 50
