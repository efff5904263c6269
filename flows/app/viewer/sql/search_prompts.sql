-- grain:  a prompt in whose messages the pattern matches, with its first match
-- inputs: prompts; $run, $pattern
with in_run as (
    select *, array_to_string([m.content for m in messages], chr(10)) as whole
    from prompts
    where $run = '' or run = $run
)

select
    run,
    iteration,
    phase,
    step,
    role,
    prompt_id,
    whole as text,
    regexp_extract(whole, '^((?s:.*?))(' || $pattern || ')', ['before', 'match']) as found
from in_run
where regexp_matches(whole, $pattern)
limit 50
