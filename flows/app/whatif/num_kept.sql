-- How many tasks or groups are kept at a place, and how many would be.
-- grain:  a place that keeps tasks or groups
-- inputs: before, now (rows of selections and groups: place, address, id, task_id, kept, reason)
with counted as (
    select place, kept as is_kept, false as would_be_kept from before
    union all
    select place, false, kept from now
)
select
    place,
    count(*) filter (where is_kept) as num_kept,
    count(*) filter (where would_be_kept) as num_would_be_kept
from counted
group by place
order by place
