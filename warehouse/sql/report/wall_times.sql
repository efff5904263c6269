-- grain:  one iteration; `wall_s` is from the start of its first stage to the end of its last without pauses, s
-- inputs: $made (JSON, one object a published table), $run, $iteration (the last one to show)
-- Stages run one after another, so what is left of the wall is the time between them. More than a minute between two is a pause:
-- the run was stopped, or a stage was rerun later.
with made as (
    select unnest(
        from_json(
            $made,
            '[{"run": "VARCHAR", "iteration": "INTEGER", "stage": "VARCHAR", "started_at": "DOUBLE", "seconds": "DOUBLE"}]'
        )
    ) as one
),
placed as (
    select one.run, one.iteration, one.stage, one.started_at, one.seconds
    from made
),
stages as (
    select
        iteration,
        stage,
        seconds,
        started_at,
        started_at + seconds as ended_at,
        started_at - max(started_at + seconds) over earlier as idle_s
    from placed
    where run = $run and iteration <= $iteration
    window earlier as (partition by iteration order by started_at rows between unbounded preceding and 1 preceding)
)
select
    iteration,
    max(ended_at) - min(started_at) - coalesce(sum(idle_s) filter (where idle_s > 60), 0) as wall_s,
    sum(seconds) filter (where stage = 'generate') as generation_s,
    sum(seconds) filter (where stage = 'update') as update_s,
    sum(seconds) filter (where stage not in ('generate', 'update')) as other_s
from stages
group by iteration
order by iteration;
