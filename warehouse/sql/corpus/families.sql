-- grain:  one document that stays in place of similar ones
-- inputs: screenings; $run, $screened (the screenings that the corpus went through)
select
    instead as stays, count(*) + 1 as documents, list(document_id order by document_id)[:20] as go,
    any_value(label) as step
from screenings where run = $run and list_contains($screened, label) and instead is not null
group by instead order by documents desc, stays limit 40;
