-- grain:  the prompt
-- inputs: prompts; $run, $id
select *
from prompts
where run = $run and prompt_id = $id
limit 1
