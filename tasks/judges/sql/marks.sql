-- grain:  marks of one label at one place among the answers that a reply compares
-- inputs: marks; $run
-- Answers are shown in random order, so the mean mark should not depend on the place.
select
    coalesce(label, '') as label,
    position,
    count(*) as n,
    count(mark) as num_read,
    avg(mark) as mean,
    stddev_samp(mark) / sqrt(count(mark)) as standard_error,
    avg((mark >= 1)::int) as top
from marks
where run = $run
group by label, position
order by label, position;
