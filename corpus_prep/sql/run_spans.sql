-- Grain: document x passage x span: a stretch of the document that runs of the passage cover without a gap.
-- In: hits (document, gram, word, start, end, alone), runs (passage, gram, size, is_common); $alone_words: a run of so many
-- words or fewer has to stand alone.
with found as (
    select h.document, r.passage, h.gram, h.word, h.start, h."end", r.size, r.is_common
    from hits as h join runs as r using (gram)
    where r.size > $alone_words or h.alone
),
-- A span ends where the next run neither overlaps nor touches it.
opened as (
    select *, coalesce(word > lag(word) over (partition by document, passage order by word) + size, true) as opens
    from found
),
numbered as (
    select *, sum(opens::int) over (partition by document, passage order by word) as span from opened
)
select
    document, passage,
    min(start) as span_start,
    max("end") as span_end,
    max(word) - min(word) + any_value(size) as num_words,
    bool_or(not is_common) as has_rare,
    list(distinct gram) as grams
from numbered
group by document, passage, span
