-- grain: what became of the candidates of one filter, kept or by the first failing test. One that passed all tests but was
-- not needed has the reason of a limit, which `bounds` names.
-- inputs: selections, groups; $run
with decided as (
    select label, kept, reason, bounds from selections where run = $run and iteration = 1
    union all
    select label, kept, reason, bounds from groups where run = $run and iteration = 1
)
select
    label as filter,
    coalesce(reason, 'kept') as outcome,
    count(*) as candidates,
    kept,
    kept or coalesce(list_contains(json_keys(bounds), reason), false) as passed
from decided
group by all
order by filter, kept desc, candidates desc, outcome;
