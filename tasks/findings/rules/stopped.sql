-- title:         what stopped the run
-- severity:      serious
-- sentence:      The run stopped {place}, by {kind}: {why}
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
    case
        when count(*) = 0 then 'before its first table'
        else coalesce('in iteration ' || max(one.iteration), 'in preparation') || printf(', after %d tables', count(*))
    end as place,
    json_extract_string($stopped, '$.kind') as kind,
    regexp_replace(json_extract_string($stopped, '$.why'), '\s+', ' ', 'g') as why
from made
having $stopped is not null;

-- rows: what the monitors measured in that iteration
select iteration, phase, step, benchmark, metric, n, score
from evaluations
where run = $run and iteration is not distinct from $iteration and benchmark like '% monitor'
order by benchmark, metric;
