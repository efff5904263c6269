-- SPELL, section 3.3: which groups of votes train the verifier.
-- grain:  one answer, with all votes on it
-- inputs: scores (the verifier's rewards, one row a vote; group_id is the answer that it is on)
-- bounds: $low, $high (of the majority's share of readable votes, inclusive), $consistency, $num_groups, $seed
-- Fewer usable groups than $num_groups: none is taken, the verifier is not updated in this step.
with voted as (
    select
        group_id,
        any_value(task_id) as task_id,
        any_value(components['rule']) as rule,
        any_value(components['majority']) as majority,
        any_value(components['majority_share']) as majority_share
    from scores
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
),
in_order as (
    select
        *,
        row_number() over (
            partition by failing is null order by md5(group_id || '-' || $seed::varchar), group_id
        ) as place,
        count(*) filter (where failing is null) over () as num_usable
    from tested
)
select
    group_id,
    task_id,
    reason is null as kept,
    reason,
    map {'rule': rule, 'majority': majority, 'majority_share': majority_share} as measures
from (
    select
        *,
        case
            when failing is not null then failing
            when num_usable < $num_groups then 'too few usable groups'
            when place > $num_groups then 'enough groups are taken'
        end as reason
    from in_order
)
order by reason is not null, place, group_id;
