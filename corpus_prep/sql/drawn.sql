-- Grain: one of the first $count drawn documents with $min_words words or more.
-- In: documents, drawn (document, place).
select document, text
from documents
join drawn using (document)
where len(string_split_regex(trim(text), '\s+')) >= $min_words
order by place
limit $count
