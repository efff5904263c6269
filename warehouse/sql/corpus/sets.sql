-- grain:  one document set: tokens of its members, or with distractors
-- inputs: document_sets; $run
select coalesce(label, 'members') as shown, sum(num_tokens) as tokens
from document_sets where run = $run group by label, set_id;
