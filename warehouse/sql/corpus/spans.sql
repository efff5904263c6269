-- grain:  one passage of an evaluation set that a document contains
-- inputs: contaminations; $run
select benchmark, passage, document_id, rule, share, removes, text
from contaminations where run = $run order by removes desc, share desc, document_id, start limit 40;
