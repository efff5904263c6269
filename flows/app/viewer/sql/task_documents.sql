-- grain:  a document of the task, the source first
-- inputs: documents; $run, $ids, $characters
select distinct on (document_id)
    document_id,
    title,
    source,
    licence,
    left(text, $characters) as text,
    length(text) as num_chars
from documents
where run = $run and list_contains($ids, document_id)
order by document_id
