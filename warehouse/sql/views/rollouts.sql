-- grain: one rollout. Adds to the stored rows what was read of the last reply, or why nothing could be (view `replies`).
create view rollouts as
with once as (
    select run, rollout_id, any_value(parsed) as parsed, any_value(malformed) as malformed
    from replies
    group by run, rollout_id
)
select rollouts_table.*, once.parsed, once.malformed
from rollouts_table
left join once using (run, rollout_id);
