-- grain:  a document that has the text, in its title or in itself
-- inputs: documents; $run, $text, $regex
select run, iteration, phase, step, document_id, concat_ws(chr(10), title, text) as text
from documents
where
    ($run = '' or run = $run)
    and case
        when $regex then regexp_matches(title, $text) or regexp_matches(text, $text)
        else contains(title, $text) or contains(text, $text) or document_id = $text
    end
limit 50
