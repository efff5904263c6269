-- Grain: a document that came into this step, in the order of the corpus: kept, or the benchmark it holds most of.
-- In: documents, screenings of earlier steps, contaminations.
with worst as (
    select document_id, arg_max(benchmark, (share, benchmark)) as benchmark
    from contaminations where removes group by document_id
)
select
    here.document_id,
    worst.document_id is null as kept,
    'contaminated: ' || worst.benchmark as reason,
    null::varchar as instead
from documents as here
left join worst using (document_id)
where
    here.dropped_reason is null
    and here.document_id not in (select document_id from screenings where not kept)
order by here.document
