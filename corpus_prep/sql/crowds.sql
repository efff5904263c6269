-- Grain: a document in a bucket of more than $max_bucket, by bucket and number.
select bucket, document
from buckets
where size > $max_bucket
order by bucket, document
