-- Rewards as they are and as they would be.
-- grain:  the tables of one name in a phase, all its steps
-- inputs: before, now (rows of scores and rewards: place, address, rollout_id, total; advantage, null in scores)
-- Ranks are among the rollouts that have both totals; equal totals share the mean of their ranks (Spearman's rho).
with paired as (
    select
        b.place,
        b.total as total_before,
        n.total as total_now,
        b.advantage as advantage_before,
        n.advantage as advantage_now
    from before as b
    join now as n using (address, rollout_id)
),

ranked as (
    select
        place,
        rank() over before_order + (count(*) over before_ties - 1) / 2 as rank_before,
        rank() over now_order + (count(*) over now_ties - 1) / 2 as rank_now
    from paired
    where total_before is not null and total_now is not null
    window
        before_order as (partition by place order by total_before),
        before_ties as (partition by place, total_before),
        now_order as (partition by place order by total_now),
        now_ties as (partition by place, total_now)
),

correlated as (
    select place, corr(rank_before, rank_now) as rank_correlation from ranked group by place
)

select
    place,
    count(*) as rollouts,
    count(*) filter (where total_before is distinct from total_now) as changed,
    any_value(rank_correlation) as rank_correlation,
    avg(total_before) as mean_before,
    avg(total_now) as mean_now,
    count(*) filter (where total_before is null) as unscorable_before,
    count(*) filter (where total_now is null) as unscorable_now,
    count(*) filter (where sign(advantage_before) <> sign(advantage_now)) as advantage_signs_changed
from paired
left join correlated using (place)
group by place
order by place;
