-- Passages of evaluation sets found in documents, with the spans they were found at.
-- Grain: document x passage x span. In: hits (document, gram, size, word, start, end), passage_runs (passage, gram,
-- size), passages (number, benchmark, passage), documents. A run that more than $max_documents hold is common.
with common as (
    select gram from hits group by gram having count(distinct document) > $max_documents
),
run as (
    select distinct passage, gram, size, gram in (from common) as is_common from passage_runs
),
passage as (
    select passage, any_value(size) as size, count(*) as num_runs, count(*) filter (not is_common) as num_rare
    from run group by passage
),
found as (
    select h.document, r.passage, h.gram, h.word, h.start, h.end, r.size, r.is_common
    from hits as h join run as r using (gram)
),
pair as (
    select
        document, passage,
        count(distinct gram) as num_found,
        count(distinct gram) filter (not is_common) as num_rare_found
    from found group by document, passage
),
-- A span ends where the next run neither overlaps nor touches it.
numbered as (
    select *, sum(begins::int) over (partition by document, passage order by word) as span
    from (
        select *, coalesce(word > lag(word) over (partition by document, passage order by word) + size, true) as begins
        from found
    )
),
spans as (
    select
        document, passage, span,
        min(start) as span_start,
        max("end") as span_end,
        max(word) - min(word) + any_value(size) as num_words,
        bool_or(not is_common) as has_rare
    from numbered group by document, passage, span
),
longest as (
    select document, passage, max(num_words) filter (has_rare) as num_words from spans group by document, passage
),
judged as (
    select
        p.document, p.passage,
        if(q.num_rare > 0, p.num_rare_found / q.num_rare, p.num_found / q.num_runs) as share,
        (q.num_rare > 0 and p.num_rare_found >= $min_share * q.num_rare)
        or coalesce(l.num_words >= $min_span_words, false)
        or (p.num_found = q.num_runs and q.num_runs + q.size - 1 >= $long_words) as removes
    from pair as p join passage as q using (passage) join longest as l using (document, passage)
    where p.num_rare_found > 0 or p.num_found = q.num_runs
),
reported as (
    select * from judged where removes or share >= $reported_share
),
texts as (
    select document, document_id, text from documents where document in (select document from reported)
)
select
    t.document_id,
    n.benchmark,
    n.passage,
    'ngrams' as rule,
    r.share::double as share,
    r.removes,
    s.span_start as start,
    s.span_end as "end",
    substring(t.text, (s.span_start + 1)::bigint, (s.span_end - s.span_start)::bigint) as text
from reported as r
join spans as s using (document, passage)
join passages as n on n.number = r.passage
join texts as t using (document)
order by r.document, n.benchmark, n.passage, s.span_start
