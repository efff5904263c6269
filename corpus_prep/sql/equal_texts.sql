-- Grain: a document whose text is another's too; its family are those of the same text.
-- In: text_hashes (document, high, low).
with repeated as (
    select high, low, min(document) as family
    from text_hashes
    group by high, low
    having count(*) > 1
)
select document, family
from text_hashes
join repeated using (high, low)
