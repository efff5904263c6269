-- grain:  a criterion that nobody or everybody meets, of $least answers or more; those that the truth contradicts first
-- inputs: judgments, rubrics; $run, $least, $most
with judged as (
    select
        iteration,
        phase,
        step,
        task_id,
        criterion_id,
        count(verdict) as n,
        sum(verdict) as num_met,
        count(*) filter (where verdict != oracle) as num_wrong
    from judgments
    where run = $run and expected is null
    group by all
    having count(verdict) >= $least and (sum(verdict) = 0 or sum(verdict) = count(verdict))
),
texts as (
    select criterion_id, any_value(criterion) as criterion from rubrics where run = $run group by criterion_id
)
select judged.*, case when judged.num_met = 0 then 'nobody' else 'everybody' end as met_by, texts.criterion
from judged left join texts using (criterion_id)
order by judged.num_wrong desc, judged.n desc, judged.criterion_id
limit $most;
