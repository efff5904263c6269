-- Grain: two documents in one bucket of at most $max_bucket.
select one.document as first, other.document as second
from buckets as one
join buckets as other on one.bucket = other.bucket and one.document < other.document
where one.size <= $max_bucket
