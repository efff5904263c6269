-- Grain: two documents that share a bucket.
-- In: pairs of all partitions of the band table.
select distinct first, second
from pairs
order by first, second
