-- title:         the most reinforced answers rest on doubtful verdicts
-- severity:      serious
-- sentence:      The {num} largest advantages of the run ({largest}) rest on wrong or unreadable verdicts, on their own
--                answer or on most answers of their group. Among all answers with a positive advantage the share is
--                {compared_with:%}.
-- compared with: the share of all answers with a positive advantage that rest on doubtful verdicts
-- page:          group
-- $chance = 0.001: how likely at most so many are by chance
-- grain:         the run, if its largest advantages all rest on doubtful verdicts
-- inputs:        judgments, batches, advantages, annotations; $run
-- A verdict is doubtful if the truth contradicts it, if people call it bad, or if it could not be read.
with verdicts as (
    select
        judgments.rollout_id,
        bool_or(
            judgments.verdict is null
            or judgments.verdict != judgments.oracle
            or coalesce(annotations.opinion = 'bad', false)
        ) as doubtful
    from judgments
    left join annotations
        on
            annotations.run = judgments.run
            and annotations.kind = 'verdict'
            and annotations.subject = judgments.judge_rollout_id
    where judgments.run = $run and judgments.expected is null
    group by judgments.rollout_id
),
trained as (
    select rollout_id, any_value(advantage) as advantage from batches where run = $run group by rollout_id
),
answers as (
    select
        trained.rollout_id,
        trained.advantage,
        advantages.group_id,
        coalesce(verdicts.doubtful, false) as own,
        avg(coalesce(verdicts.doubtful, false)::int) over (partition by advantages.group_id) as in_group
    from trained
    join (select distinct rollout_id, group_id from advantages where run = $run) as advantages using (rollout_id)
    join verdicts using (rollout_id)
),
reinforced as (
    select
        *,
        own or in_group >= 0.5 as doubtful,
        row_number() over (order by advantage desc, rollout_id) as place
    from answers
    where advantage > 0
),
counted as (
    select
        coalesce(min(place) filter (where not doubtful) - 1, count(*)) as num,
        avg(doubtful::int) as share
    from reinforced
)
select
    counted.num,
    counted.num::double as number,
    counted.share as compared_with,
    (
        select string_agg(printf('%+.2f', advantage), ', ' order by place)
        from reinforced
        where place <= least(counted.num, 3)
    ) as largest
from counted
where counted.num >= 2 and counted.share ** counted.num < $chance;

-- rows: the answers of these groups, the most reinforced group first
with judged as (
    select
        rollout_id,
        count(*) filter (where verdict != oracle) as num_wrong,
        count(*) filter (where verdict is null) as num_unread
    from judgments
    where run = $run and expected is null
    group by rollout_id
),
trained as (
    select distinct advantages.group_id, advantages.rollout_id, advantages.advantage
    from advantages join judged using (rollout_id)
    where advantages.run = $run and rollout_id in (select rollout_id from batches where run = $run)
),
largest as (
    select group_id, max(advantage) as largest
    from (select * from trained order by advantage desc, rollout_id limit $num)
    group by group_id
)
select
    advantages.iteration,
    advantages.phase,
    advantages.step,
    advantages.group_id,
    advantages.task_id,
    advantages.rollout_id,
    advantages.advantage,
    judged.num_wrong,
    judged.num_unread
from advantages
join largest using (group_id)
left join judged using (rollout_id)
where advantages.run = $run
order by largest.largest desc, advantages.group_id, advantages.advantage desc, advantages.rollout_id;
