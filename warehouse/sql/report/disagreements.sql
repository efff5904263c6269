-- grain:  one type of task at one step: answers that both a rule and a judge's votes have decided on
-- inputs: votes, matches, tasks; $run, $iteration (the last one to show)
-- More than half of all votes on an answer, unreadable ones among them, make a yes. What the rule could not compare is left out.
with decided as (
    select run, rollout_id, any_value(task_id) as task_id, 2 * coalesce(sum(vote), 0) > count(*) as accepted
    from votes
    where run = $run and iteration <= $iteration
    group by run, rollout_id
    having count(vote) > 0
)
select
    matches.iteration,
    matches.phase,
    matches.step,
    tasks.task_type,
    count(*) as n,
    count(*) filter (where decided.accepted and not matches.matched) as num_votes_only,
    count(*) filter (where matches.matched and not decided.accepted) as num_rule_only
from decided
join matches using (run, rollout_id)
join (select distinct on (run, task_id) run, task_id, task_type from tasks) as tasks
    on tasks.run = decided.run and tasks.task_id = decided.task_id
where matches.matched is not null
group by all
order by tasks.task_type, matches.iteration, matches.phase, matches.step;
