-- grain:  one pair of documents near the threshold of similarity, with the beginnings of their texts
-- inputs: duplicates, documents; $run, $threshold
with nearest as (
    select first_id, second_id, jaccard, first, second from duplicates where run = $run
    order by abs(jaccard - $threshold), first, second limit 12
)
select
    n.first_id, n.second_id, n.jaccard, n.jaccard >= $threshold as merged,
    left(one.text, 4000) as first_text, left(other.text, 4000) as second_text
from nearest as n
join documents as one on one.run = $run and one.label is null and one.document_id = n.first_id
join documents as other on other.run = $run and other.label is null and other.document_id = n.second_id
order by n.jaccard desc, n.first, n.second;
