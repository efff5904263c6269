-- grain:  a rollout of the role, or of any, whose last reply has the text
-- inputs: rollouts_table; $run, $role, $text, $regex
select run, iteration, phase, step, role, rollout_id, reply as text
from rollouts_table
where
    ($run = '' or run = $run)
    and ($role = '' or role = $role)
    and case when $regex then regexp_matches(reply, $text) else contains(reply, $text) end
limit 50
