-- Grain: a run of words of a passage, and whether it is common: more than $max_documents of the corpus' $num_documents
-- documents hold it. In: passage_runs (passage, gram, size), hits (document, gram).
with common as (
    select gram from hits where document < $num_documents group by gram having count(distinct document) > $max_documents
)
select distinct passage, gram, size, gram in (from common) as is_common from passage_runs
