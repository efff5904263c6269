-- grain:  one bar of the histogram of compared pairs of documents, 0.02 of Jaccard similarity wide
-- inputs: duplicates; $run
select least(floor(jaccard * 50) / 50, 0.98) as bin, count(*) as pairs
from duplicates where run = $run group by bin order by bin;
