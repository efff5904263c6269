-- Grain: a document in a bucket of one partition of the band table that it shares with others.
-- In: bands; $first_band, $last_band, $low, $high: the partition. Hashes of different bands differ.
with banded as (
    select document, hash
    from bands
    where
        band between $first_band and $last_band
        and hash between $low::ubigint and $high::ubigint
),
shared as (
    select hash, count(*) as size
    from banded
    group by hash
    having count(*) > 1
)
select document, hash as bucket, size
from banded
join shared using (hash)
