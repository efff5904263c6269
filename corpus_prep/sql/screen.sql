-- Grain: a document that came into this step, in the order of the corpus: kept, or why not.
-- In: documents, screenings of earlier steps, duplicates (document, instead); $reason of the dropped.
with screened_out as (
    select document_id from screenings where not kept
)
select
    here.document_id,
    duplicates.document is null as kept,
    case when duplicates.document is not null then $reason end as reason,
    other.document_id as instead
from documents as here
anti join screened_out using (document_id)
left join duplicates on duplicates.document = here.document
left join documents as other on other.document = duplicates.instead
where here.dropped_reason is null
order by here.document
