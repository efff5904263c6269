-- SPELL, section 3.3: which groups of votes may train the verifier, in the order they are drawn in.
-- grain:  one answer, with all votes on it
-- inputs: rewards (the verifier's rewards, one row a vote; group_id is the answer that it is on)
-- bounds: $low, $high (of the majority's share of readable votes, inclusive), $consistency, $num_groups, $seed
-- Fewer usable groups than $num_groups: none is taken, the verifier is not updated in this step.
with voted as (
    select
        group_id,
        any_value(task_id) as task_id,
        any_value(components['rule']) as rule,
        any_value(components['majority']) as majority,
        any_value(components['majority_share']) as majority_share
    from rewards
    group by group_id
),
tested as (
    select
        *,
        case
            when majority is null then 'no vote could be read'
            when $consistency and majority <> rule then 'majority and rule differ'
            when majority_share < $low - 1e-9 then 'no clear majority'
            when majority_share > $high + 1e-9 then 'unanimous'
        end as failing
    from voted
)
select
    group_id,
    task_id,
    map {'rule': rule, 'majority': majority, 'majority_share': majority_share} as measures,
    case
        when failing is not null then failing
        when count(*) filter (where failing is null) over () < $num_groups then 'too few usable groups'
    end as reason
from tested
order by md5(group_id || '-' || $seed::varchar), group_id;
