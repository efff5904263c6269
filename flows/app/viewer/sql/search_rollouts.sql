-- grain:  a rollout of the role, or of any, in whose last reply the pattern matches, with its first match
-- inputs: rollouts_table; $run, $role, $pattern
select
    run,
    iteration,
    phase,
    step,
    role,
    rollout_id,
    reply as text,
    regexp_extract(reply, '^((?s:.*?))(' || $pattern || ')', ['before', 'match']) as found
from rollouts_table
where ($run = '' or run = $run) and ($role = '' or role = $role) and regexp_matches(reply, $pattern)
limit 50
