-- grain:  one criterion of a rollout's task; verdict and oracle where the rollout is an answer that was judged by it
-- inputs: rubrics, judgments, rollouts, prompts; $run, $rollout_ids
with about as (
    select rollouts.run, rollouts.rollout_id, coalesce(prompts.task_id, rollouts.rollout_id) as task_id
    from rollouts
    left join prompts using (run, prompt_id)
    where rollouts.run = $run and list_contains($rollout_ids, rollouts.rollout_id)
)
select
    about.rollout_id,
    rubrics.position,
    rubrics.criterion,
    rubrics.priority,
    judgments.verdict,
    judgments.oracle,
    coalesce(judgments.malformed, rubrics.malformed) as malformed
from about
join (select distinct on (run, criterion_id) * from rubrics) as rubrics using (run, task_id)
left join judgments
    on
        judgments.run = about.run
        and judgments.rollout_id = about.rollout_id
        and judgments.criterion_id = rubrics.criterion_id
order by about.rollout_id, rubrics.position;
