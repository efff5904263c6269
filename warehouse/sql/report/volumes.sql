-- grain:  one kind of table in an iteration; a null iteration is the run's own
-- inputs: $made (JSON, one object a published table), $run, $iteration (the last one to show)
with made as (
    select unnest(
        from_json($made, '[{"run": "VARCHAR", "iteration": "INTEGER", "kind": "VARCHAR", "num_rows": "BIGINT"}]')
    ) as one
)
select
    one.kind,
    one.iteration,
    count(*) as num_tables,
    sum(one.num_rows)::bigint as num_rows
from made
where one.run = $run and (one.iteration is null or one.iteration <= $iteration)
group by one.kind, one.iteration
order by one.kind, one.iteration nulls first;
