-- Grain: an edge between two documents of the corpus (not one planted behind it), once.
-- In: edges, documents; $num_documents of the corpus.
with distinct_edges as (
    select first, second, any_value(jaccard) as jaccard
    from edges
    where second < $num_documents
    group by first, second
)
select
    first,
    second,
    one.document_id as first_id,
    other.document_id as second_id,
    jaccard
from distinct_edges
join documents as one on one.document = first
join documents as other on other.document = second
order by first, second
