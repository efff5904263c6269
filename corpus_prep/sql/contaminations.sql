-- Grain: document x passage x span, of the corpus' $num_documents documents.
-- In: found (document, passage, share, removes), spans, passages (number, benchmark, passage), documents.
with texts as (
    select document, document_id, text
    from documents
    where document < $num_documents and document in (select document from found)
)
select
    t.document_id,
    p.benchmark,
    p.passage,
    'ngrams' as rule,
    f.share::double as share,
    f.removes,
    s.span_start as start,
    s.span_end as "end",
    substring(t.text, (s.span_start + 1)::bigint, (s.span_end - s.span_start)::bigint) as text
from found as f
join spans as s using (document, passage)
join passages as p on p.number = f.passage
join texts as t using (document)
order by f.document, p.benchmark, p.passage, s.span_start
