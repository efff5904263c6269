-- Grain: document x passage: which share of the passage's runs the document holds, and whether that drops it.
-- In: runs (passage, gram, size, is_common), spans (document, passage, num_words, has_rare, grams).
with passage as (
    select passage, any_value(size) as size, count(*) as num_runs, count(*) filter (not is_common) as num_rare
    from runs group by passage
),
held as (
    select distinct document, passage, unnest(grams) as gram from spans
),
counted as (
    select h.document, h.passage, count(*) as num_held, count(*) filter (not r.is_common) as num_rare_held
    from held as h join runs as r using (passage, gram)
    group by h.document, h.passage
),
longest as (
    select document, passage, max(num_words) as num_words from spans where has_rare group by document, passage
),
judged as (
    select
        c.document, c.passage,
        if(p.num_rare > 0, c.num_rare_held / p.num_rare, c.num_held / p.num_runs) as share,
        (p.num_rare > 0 and c.num_rare_held >= $min_share * p.num_rare)
        or coalesce(l.num_words >= $min_span_words, false)
        or (c.num_held = p.num_runs and p.num_runs + p.size - 1 >= $long_words) as removes
    from counted as c join passage as p using (passage) left join longest as l using (document, passage)
    where c.num_rare_held > 0 or c.num_held = p.num_runs
)
select * from judged where removes or share >= $reported_share
