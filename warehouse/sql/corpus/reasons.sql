-- grain:  one reason for which a step dropped documents
-- inputs: documents, screenings; $run, $screened (the screenings that the corpus went through)
select part, reason, count(*) as documents from (
    select 'read' as part, dropped_reason as reason from documents where run = $run and label is null
    union all
    select label, reason from screenings where run = $run and list_contains($screened, label)
)
where reason is not null group by all order by documents desc;
