-- What would be kept, where it is not what was kept.
-- grain:  a candidate task or group whose keeping changes
-- inputs: before, now (rows of selections and groups: place, step, address, id, task_id, kept, reason), tasks (task_id, text)
select
    coalesce(before.place, now.place) as place,
    coalesce(before.step, now.step) as step,
    coalesce(before.id, now.id) as id,
    case when before.kept then 'kept' else coalesce(before.reason, 'no candidate') end as was,
    case when now.kept then 'kept' else coalesce(now.reason, 'no candidate') end as would_be,
    t.text as task
from before
full join now using (address, id)
left join tasks as t on coalesce(before.task_id, now.task_id) = t.task_id
where coalesce(before.kept, false) <> coalesce(now.kept, false)
order by place, step, would_be, was, id;
