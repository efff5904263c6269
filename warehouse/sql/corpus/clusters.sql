-- grain:  one cluster, the largest first
-- inputs: clusters; $run
select cluster, num_documents, similarity, title, array_to_string(keywords, ', ') as keywords
from clusters where run = $run order by num_documents desc, cluster limit 40;
