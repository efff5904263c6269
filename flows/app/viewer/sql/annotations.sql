-- grain:  what one person says of one thing; of all things where none is named
-- inputs: annotations; $run, $kind, $id
select kind, subject, labeller, opinion, note, labelled_at, sample
from annotations
where run = $run and ($id is null or (kind = $kind and subject = $id))
order by labelled_at desc
limit 2000
