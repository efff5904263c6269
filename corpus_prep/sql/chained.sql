-- Grain: one row: how many documents gave way to one that they resemble only through others.
-- In: screened (rows of screenings), duplicates; $threshold.
with direct as (
    select first_id as document_id, second_id as instead from duplicates where jaccard >= $threshold
    union all
    select second_id, first_id from duplicates where jaccard >= $threshold
)
select count(*)
from screened
anti join direct using (document_id, instead)
where instead is not null
