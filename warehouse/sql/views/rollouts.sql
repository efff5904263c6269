-- grain: one rollout. Adds to the stored rows what was read of the last reply, or why nothing could be.
create view rollouts as
with read as (
    select run, rollout_id, text as parsed, malformed from tasks
    union all
    select run, rollout_id, answer as parsed, malformed from answers
    union all
    select run, judge_rollout_id, cast(passed as varchar), malformed from gates where kind = 'model'
    union all
    select run, judge_rollout_id, cast(verdict as varchar), malformed from judgments
    union all
    select run, judge_rollout_id, cast(vote as varchar), malformed from votes
    union all
    select run, judge_rollout_id, string_agg(criterion, chr(10) order by position), any_value(malformed)
    from rubrics
    group by run, judge_rollout_id
),
once as (
    select run, rollout_id, any_value(parsed) as parsed, any_value(malformed) as malformed
    from read
    group by run, rollout_id
)
select rollouts_table.*, once.parsed, once.malformed
from rollouts_table
left join once using (run, rollout_id);
