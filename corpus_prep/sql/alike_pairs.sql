-- Grain: a document and a passage that share a band, with both texts.
-- In: bands (document, band, hash), passage_bands (passage, band, hash), passages (number, text), documents.
with pair as (
    select distinct b.document, p.passage from bands as b join passage_bands as p using (band, hash)
)
select pair.document, pair.passage, d.document_id, d.text as document_text, p.text as passage_text
from pair
join documents as d using (document)
join passages as p on p.number = pair.passage
order by pair.document, pair.passage
