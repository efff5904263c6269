-- grain:  one outcome of reading the replies to a template in an iteration; a null reason counts those that were read
-- inputs: rollouts, prompts; $run, $iteration (the last one to show)
select
    rollouts.iteration,
    rollouts.role,
    coalesce(prompts.template, '(prompt not found)') as template,
    rollouts.malformed as reason,
    count(*) as n
from rollouts
left join prompts using (run, prompt_id)
where rollouts.run = $run and rollouts.iteration <= $iteration
group by all
order by rollouts.role, template, rollouts.iteration, n desc, reason;
