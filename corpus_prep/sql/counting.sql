-- Grain: a document that counts: usable, and kept by every screening so far.
with screened_out as (
    select document_id from screenings where not kept
)
select document
from documents
anti join screened_out using (document_id)
where dropped_reason is null
