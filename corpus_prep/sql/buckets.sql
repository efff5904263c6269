-- Grain: a document in a bucket of one partition of the band table that it shares with others.
-- In: bands; $band, $low, $high: the partition.
with banded as (
    select document, hash
    from bands
    where band = $band and hash between $low::ubigint and $high::ubigint
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
