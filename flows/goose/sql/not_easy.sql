-- Golden Goose: which tasks the policy trains on, or the first reason why not.
-- grain:  one task that an author was asked for
-- inputs: tasks, rewards (one row an attempt: 1 if it is right)
-- bounds: $too_easy (share of right attempts from which a task is dropped), $enabled, $seed
with attempts as (
    select
        task_id,
        count(*) as num_rollouts,
        count(score) as num_judged,
        sum(score) as num_correct,
        avg(score) as mean_score
    from rewards
    group by task_id
)
select
    t.task_id,
    t.document_id,
    a.num_correct::bigint as num_correct,
    a.num_judged,
    coalesce(a.num_rollouts, 0) as num_rollouts,
    a.mean_score,
    case
        when t.malformed is not null then 'malformed: ' || t.malformed
        when a.mean_score is null then 'no attempt could be compared'
        when $enabled and a.mean_score >= $too_easy - 1e-9 then 'too easy'
    end as reason
from tasks as t
left join attempts as a using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
