-- title:         time is spent on neither sampling nor updates
-- severity:      note
-- sentence:      {number:%} of the stages' time ({hours:.1f} h) was spent in {stage}, which neither samples nor updates.
-- compared with: the share of sampling and updates
-- page:          stages
-- $most = 0.35:  the rule fires above this share
-- $least = 1800: minimum number of seconds
-- grain:         the stage with the largest share, neither sampling nor updates
-- inputs:        $made
with made as (
    select unnest(from_json($made, '[{"stage": "VARCHAR", "seconds": "DOUBLE"}]')) as one
),
of_stage as (
    select one.stage, sum(one.seconds) as seconds
    from made
    group by one.stage
),
shares as (
    select stage, seconds, seconds / nullif(sum(seconds) over (), 0) as share
    from of_stage
)
select
    stage,
    share as number,
    (select coalesce(sum(share), 0) from shares where stage in ('generate', 'update')) as compared_with,
    seconds / 3600 as hours
from shares
where stage not in ('generate', 'update') and share > $most and seconds > $least
order by seconds desc
limit 1;

-- rows: the longest of its tables
select one.iteration, one.phase, one.kind, one.num_rows, one.seconds
from (
    select unnest(
        from_json(
            $made,
            '[{"iteration": "INTEGER", "phase": "VARCHAR", "kind": "VARCHAR", "stage": "VARCHAR", "num_rows": "BIGINT",
               "seconds": "DOUBLE"}]'
        )
    ) as one
)
where one.stage = $stage
order by one.seconds desc;
