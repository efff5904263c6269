-- grain:  a task of a run in an iteration: its answers and their mean score
-- inputs: answers, rewards; $ids
with mine as (
    select distinct run, iteration, task_id, rollout_id
    from answers
    where list_contains($ids, task_id)
),
scored as (
    select run, rollout_id, any_value(score) as score, any_value(reward) as reward
    from rewards
    where (run, rollout_id) in (select (run, rollout_id) from mine)
    group by run, rollout_id
)
select
    mine.run,
    mine.iteration,
    mine.task_id,
    count(*) as num_answers,
    avg(coalesce(scored.score, scored.reward)) as score
from mine
left join scored using (run, rollout_id)
group by all
order by mine.run, mine.iteration, mine.task_id
