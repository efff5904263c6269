-- Grain: a document that stands in another.
-- In: held (document, holder, share), documents.
select one.document_id, other.document_id as holder_id, held.share
from held
join documents as one using (document)
join documents as other on other.document = held.holder
order by held.document
