-- grain:  the document
-- inputs: documents; $run, $id, $characters
select
    run,
    document_id,
    title,
    source,
    licence,
    language,
    score,
    dropped_reason,
    left(text, $characters) as text,
    length(text) as num_chars
from documents
where run = $run and document_id = $id
limit 1
