-- grain:  one type of task at one step
-- inputs: selections, tasks; $run, $iteration (the last one to show)
-- `mean_score` is over the candidates that have one; steps without candidates of a type have no row.
select
    selections.iteration,
    selections.phase,
    selections.step,
    tasks.task_type,
    count(*) as n,
    count(*) filter (where selections.kept) as num_kept,
    count(selections.mean_score) as num_scored,
    avg(selections.mean_score) as mean_score
from selections
join (select distinct on (run, task_id) run, task_id, task_type from tasks) as tasks using (run, task_id)
where selections.run = $run and selections.iteration <= $iteration
group by all
order by tasks.task_type, selections.iteration, selections.phase, selections.step;
