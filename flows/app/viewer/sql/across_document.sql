-- grain:  tasks written from the document in an iteration of a run
-- inputs: tasks, selections; $id
with mine as (
    select distinct run, iteration, task_id, text is not null as readable
    from tasks
    where document_id = $id
),
chosen as (
    select run, task_id, bool_or(kept) as kept, avg(mean_score) as mean_score
    from selections
    where document_id = $id
    group by run, task_id
)
select
    mine.run,
    mine.iteration,
    count(*) as num_tasks,
    count(*) filter (where mine.readable) as num_readable,
    count(*) filter (where chosen.kept) as num_kept,
    avg(chosen.mean_score) as mean_score
from mine
left join chosen using (run, task_id)
group by all
order by mine.run, mine.iteration
