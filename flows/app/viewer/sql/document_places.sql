-- grain:  a table with prompts that show the document, or with tasks written from it
-- inputs: prompts, tasks; $run, $id
select distinct 'prompts' as name, iteration, phase, step, label
from prompts
where run = $run and document_id = $id
union all
select distinct 'tasks', iteration, phase, step, label
from tasks
where run = $run and (document_id = $id or list_contains(evidence, $id))
