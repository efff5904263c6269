-- Grain: document x passage x span, of the corpus' $num_documents documents.
-- In: found (document, passage, share, removes), spans, edited (document, passage, share, removes, span_start, span_end),
-- passages (number, benchmark, passage), documents.
with span as (
    select f.document, f.passage, 'ngrams' as rule, f.share::double as share, f.removes, s.span_start, s.span_end
    from found as f
    join spans as s using (document, passage)
    union all
    select document, passage, 'aligned', share, removes, span_start, span_end
    from edited
),
texts as (
    select document, document_id, text
    from documents
    where document < $num_documents and document in (select document from span)
)
select
    t.document_id,
    p.benchmark,
    p.passage,
    s.rule,
    s.share,
    s.removes,
    s.span_start as start,
    s.span_end as "end",
    substring(t.text, (s.span_start + 1)::bigint, (s.span_end - s.span_start)::bigint) as text
from span as s
join passages as p on p.number = s.passage
join texts as t using (document)
order by s.document, p.benchmark, p.passage, s.rule desc, s.span_start
