-- grain:  one number of documents that clusters have
-- inputs: clusters; $run
select num_documents as size, count(*) as clusters from clusters where run = $run group by size order by size;
