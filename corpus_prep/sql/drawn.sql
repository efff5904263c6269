-- Grain: a drawn document, in the order in which it was drawn.
-- In: documents, drawn (document, place).
select document, text
from documents
join drawn using (document)
order by place
