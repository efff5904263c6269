-- Grain: a seed of a passage that is a common phrase: more than $seed_documents of the corpus' $num_documents documents or
-- more than $seed_passages passages have it. In: hits (document, gram), seeds (passage, gram, size, word) of different
-- passages.
with common as (
    select gram from hits where document < $num_documents group by gram having count(distinct document) > $seed_documents
    union
    select gram from seeds group by gram having count(distinct passage) > $seed_passages
)
select passage, gram, size, word from seeds semi join common using (gram)
