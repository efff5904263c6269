-- SPELL, section 3.3: which questions train the questioner.
-- grain:  one candidate question
-- inputs: tasks, rewards (the questioner's rewards), groups (the selections of the responder's groups)
-- bounds: $types (all task types, in order), $seed
-- Positives are the questions of the batch's responder groups. As many negatives (reward -1, -0.5 or 0) are drawn of each
-- task type; what a type is short of passes to the next.
with types as (
    select unnest($types) as task_type, generate_subscripts($types, 1) as place
),
candidates as (
    select
        t.task_id,
        t.prompt_id,
        types.place as type_place,
        r.reward,
        r.unscorable,
        coalesce(g.kept, false) as positive
    from tasks as t
    join rewards as r using (task_id)
    join types using (task_type)
    left join groups as g using (task_id)
),
counted as (
    select
        types.place as type_place,
        count(*) filter (where c.positive) as num_positive,
        count(*) filter (where not c.positive and c.reward <= 0) as num_negative
    from types
    left join candidates as c on c.type_place = types.place
    group by types.place
),
summed as (
    select
        type_place,
        sum(num_positive) over (order by type_place) as positives_so_far,
        sum(num_negative) over (order by type_place) as negatives_so_far
    from counted
),
-- taken so far = min(taken before + this type's negatives, positives so far), in closed form
taken as (
    select
        type_place,
        negatives_so_far + min(least(positives_so_far - negatives_so_far, 0)) over (order by type_place) as taken_so_far
    from summed
),
allotted as (
    select type_place, taken_so_far - lag(taken_so_far, 1, 0) over (order by type_place) as num_taken
    from taken
),
ranked as (
    select
        c.*,
        a.num_taken,
        row_number() over (
            partition by c.type_place, not c.positive and c.reward <= 0
            order by md5(c.task_id || '-' || $seed::varchar), c.task_id
        ) as place
    from candidates as c
    join allotted as a using (type_place)
)
select
    prompt_id as group_id,
    task_id,
    map {'reward': reward, 'positive': positive::int::double} as measures,
    case
        when unscorable is not null then unscorable
        when positive then null
        when reward > 0 then 'its answers are not in the batch'
        when place > num_taken then 'as many negatives as positives are taken'
    end as reason
from ranked
order by type_place, place, task_id;
