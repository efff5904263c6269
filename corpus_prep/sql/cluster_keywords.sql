-- Clusters described for people: size, keywords, the title of their most central document.
-- Grain: cluster. Inputs: memberships and documents (files). Words are weighted by c-TF-IDF (Grootendorst, arXiv
-- 2203.05794, eq. 2), on numbers of documents in place of words, so that one long document does not speak for all.
with membership as (
    select * from read_parquet($memberships)
),
cluster as (
    select
        cluster, any_value(parent) as parent, count(*) as num_documents, avg(similarity) as similarity,
        arg_max(document_id, (similarity, document_id)) as central
    from membership group by cluster
),
document as (
    select cluster, document_id, title, left(concat_ws(' ', title, text), $chars) as beginning
    from read_parquet($documents) join membership using (document_id)
),
word as (
    select distinct cluster, document_id, unnest(regexp_extract_all(lower(beginning), '\p{L}[\p{L}\p{N}]{2,}')) as word
    from document
),
counted as (
    select cluster, word, count(*) as num_with_word from word group by cluster, word
),
everywhere as (
    select word, sum(num_with_word) as num_with_word from counted group by word
),
mean as (
    select sum(num_with_word) / count(distinct cluster) as num_words from counted
),
weighted as (
    select
        c.cluster, c.word,
        c.num_with_word / k.num_documents * ln(1 + mean.num_words / e.num_with_word) as weight
    from counted as c join everywhere as e using (word) join cluster as k using (cluster) cross join mean
    where c.num_with_word > 1 or k.num_documents = 1
),
ranked as (
    select cluster, word, row_number() over (partition by cluster order by weight desc, word) as place from weighted
),
keyword as (
    select cluster, list(word order by place) as keywords from ranked where place <= $num_keywords group by cluster
)
select
    k.cluster, k.parent, k.num_documents, k.similarity, coalesce(w.keywords, []) as keywords,
    nullif(d.title, '') as title
from cluster as k
left join keyword as w using (cluster)
join document as d on d.document_id = k.central
order by k.cluster
