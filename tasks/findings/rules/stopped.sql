-- title:         what stopped the run
-- severity:      serious
-- sentence:      The run stopped after {tables} tables, in {place}, by {kind}: {why}
-- compared with: nothing
-- page:          stages
-- grain:         the error that ended the run, if one did
-- inputs:        $stopped, $made
with made as (
    select unnest(from_json($made, '[{"iteration": "INTEGER", "phase": "VARCHAR"}]')) as one
)
select
    max(one.iteration) as iteration,
    null as number,
    null as compared_with,
    count(*) as tables,
    coalesce('iteration ' || max(one.iteration), 'preparation') as place,
    json_extract_string($stopped, '$.kind') as kind,
    regexp_replace(json_extract_string($stopped, '$.why'), '\s+', ' ', 'g') as why
from made
having $stopped is not null;

-- rows: what the monitors measured in that iteration
select iteration, phase, step, benchmark, metric, n, score
from evaluations
where run = $run and iteration is not distinct from $iteration and benchmark like '% monitor'
order by benchmark, metric;
