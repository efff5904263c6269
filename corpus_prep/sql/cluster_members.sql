-- Grain: a document in its cluster, most similar first. In: memberships (files), lengths (files).
select m.document_id, m.cluster, l.num_tokens
from read_parquet($memberships) as m
join read_parquet($lengths) as l using (document_id)
order by m.cluster, m.similarity desc, m.document_id
