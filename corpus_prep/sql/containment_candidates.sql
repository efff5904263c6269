-- Grain: a document and one with at least as many shingles that has one of its rarest, longest documents first.
-- In: rare and holders (document, hash, size); $max_holders: documents with the most shingles that are taken for one.
with holder as (
    select document, hash, size
    from holders
    qualify row_number() over (partition by hash order by size desc, document) <= $max_holders
)
select distinct rare.document, holder.document as holder, rare.size
from rare
join holder using (hash)
where holder.size > rare.size or (holder.size = rare.size and holder.document < rare.document)
order by rare.size desc, rare.document, holder
