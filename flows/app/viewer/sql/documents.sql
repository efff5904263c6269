-- grain:  a document, with the tasks written from it
-- inputs: documents, tasks; $run, $text, $skipped
with written as (
    select document_id, count(*) as num_tasks
    from tasks
    where run = $run and document_id is not null
    group by document_id
),
mine as (
    select
        document_id,
        any_value(title) as title,
        any_value(source) as source,
        any_value(num_chars) as num_chars,
        any_value(dropped_reason) as dropped_reason
    from documents
    where run = $run and ($text = '' or contains(lower(title), lower($text)) or document_id = $text)
    group by document_id
)
select mine.*, coalesce(written.num_tasks, 0) as num_tasks
from mine
left join written using (document_id)
order by num_tasks desc, mine.document_id
limit 101 offset $skipped
