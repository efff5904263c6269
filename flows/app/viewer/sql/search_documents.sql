-- grain:  a document in whose title or text the pattern matches, with its first match; or that has the text as its id
-- inputs: documents; $run, $text, $pattern
with in_run as (
    select *, concat_ws(chr(10), title, text) as whole
    from documents
    where $run = '' or run = $run
)

select
    run,
    iteration,
    phase,
    step,
    document_id,
    whole as text,
    regexp_extract(whole, '^((?s:.*?))(' || $pattern || ')', ['before', 'match']) as found
from in_run
where regexp_matches(title, $pattern) or regexp_matches(text, $pattern) or document_id = $text
limit 50
