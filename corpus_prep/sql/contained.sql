-- Grain: a document that stands in another, and that other, by number. In: containments, documents.
select one.document, other.document as instead
from containments as c
join documents as one on one.document_id = c.document_id
join documents as other on other.document_id = c.holder_id
