-- grain:  a standard and a kind of verdict, in one group of verdicts: all of them, or by what `$by` names
-- inputs: verdicts (a view), rollouts, rubrics, batches; $run, $by (phase, iteration, place, role, criterion, length, position)
-- An unreadable verdict agrees with nothing: it counts in `n`. `low` and `high` bound the agreement by 95 % (Wilson). `kappa` is
-- Cohen's: what agreement exceeds that of chance, given how often either says yes. `weighted` is the share of |advantage| of
-- answers trained on that rests on right verdicts.
with length_of as (
    select rollout_id, any_value(num_sampled_tokens) as length
    from rollouts_table
    where run = $run
    group by rollout_id
),
role_of as (
    select rollout_id, any_value(role) as role from rollouts_table where run = $run group by rollout_id
),
criteria as (
    select criterion_id, any_value(position) as position, any_value(priority) as priority
    from rubrics
    where run = $run
    group by criterion_id
),
weights as (
    select rollout_id, max(abs(advantage)) as weight from batches where run = $run group by rollout_id
),
known as (
    select
        verdicts.*,
        weights.weight,
        length_of.length,
        ntile(4) over (partition by verdicts.standard, verdicts.what order by length_of.length) as quarter,
        role_of.role,
        criteria.position,
        criteria.priority
    from verdicts
    left join weights using (rollout_id)
    left join length_of using (rollout_id)
    left join role_of on role_of.rollout_id = verdicts.judge_rollout_id
    left join criteria using (criterion_id)
    where verdicts.run = $run
),
ranged as (
    select *, printf('quarter %d: %d to %d tokens', quarter, min(length) over same, max(length) over same) as length_range
    from known
    window same as (partition by standard, what, quarter)
),
grouped as (
    select
        *,
        case $by
            when 'phase' then coalesce(phase, 'none')
            when 'iteration' then coalesce(printf('%3d', iteration), 'none')
            when 'place' then coalesce(printf('%3d', iteration), '') || ' ' || coalesce(phase, '')
            when 'role' then coalesce(role, 'none')
            when 'criterion' then coalesce(priority, 'none')
            when 'length' then coalesce(case when length is not null then length_range end, 'none')
            when 'position' then coalesce(printf('%2d', position + 1), 'none')
            else 'all'
        end as part
    from ranged
),
counted as (
    select
        what,
        standard,
        part,
        count(*) as n,
        count(*) filter (where verdict = truth) as num_right,
        count(*) filter (where verdict > truth) as num_false_pass,
        count(*) filter (where verdict < truth) as num_false_fail,
        count(*) filter (where verdict is null) as num_unread,
        avg(truth) as base_rate,
        avg(coalesce(verdict, 0)) as yes_rate,
        sum(weight) filter (where verdict = truth) / nullif(sum(weight), 0) as weighted
    from grouped
    group by what, standard, part
)
select
    what,
    standard,
    part,
    n,
    num_right,
    num_false_pass,
    num_false_fail,
    num_unread,
    num_right / n as agreement,
    wilson_low(num_right, n, 1.96) as low,
    wilson_high(num_right, n, 1.96) as high,
    base_rate,
    yes_rate,
    (num_right / n - (base_rate * yes_rate + (1 - base_rate) * (1 - yes_rate)))
    / nullif(1 - (base_rate * yes_rate + (1 - base_rate) * (1 - yes_rate)), 0) as kappa,
    weighted
from counted
where $by = '' or part != 'none'
order by what, standard, part;
