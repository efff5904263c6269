-- Grain: a place where a document and a passage share a seed that few documents and few passages have, once every 64
-- words and diagonals; not in documents that runs of words drop anyway.
-- In: hits (document, gram, word), seeds (passage, gram, word), found (document, removes); $num_documents of the corpus;
-- $seed_documents and $seed_passages, beyond which a seed is a common phrase.
with common as (
    select gram from hits where document < $num_documents group by gram having count(distinct document) > $seed_documents
    union all
    select gram from seeds group by gram having count(distinct passage) > $seed_passages
),
met as (
    select h.document, s.passage, h.word, s.word as passage_word
    from hits as h
    join seeds as s using (gram)
    anti join common using (gram)
    anti join (select distinct document from found where removes) as dropped using (document)
)
select document, passage, min(word) as word, arg_min(passage_word, word) as passage_word
from met
group by document, passage, word // 64, (word - passage_word) // 64
order by document, passage, word
