-- Grain: a document that counts: usable, and kept by every screening so far.
select document
from documents
where
    dropped_reason is null
    and document_id not in (select document_id from screenings where not kept)
