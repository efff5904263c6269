-- grain:  the prompt
-- inputs: prompts; $run, $places, $id
select *
from prompts
where run = $run and prompt_id = $id and ($places is null or list_contains($places, concat_ws('/', iteration, phase, step)))
limit 1
