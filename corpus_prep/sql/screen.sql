-- Grain: a document that came into this step, in the order of the corpus: kept, or why not.
-- In: documents, screenings of earlier steps, duplicates (document, instead); $reason of the dropped.
select
    here.document_id,
    duplicates.document is null as kept,
    case when duplicates.document is not null then $reason end as reason,
    other.document_id as instead
from documents as here
left join duplicates using (document)
left join documents as other on other.document = duplicates.instead
where
    here.dropped_reason is null
    and here.document_id not in (select document_id from screenings where not kept)
order by here.document
