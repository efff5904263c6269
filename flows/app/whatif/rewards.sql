-- Rewards as they are and as they would be.
-- grain:  the tables of one name in a phase, all its steps
-- inputs: before, now (rows of rewards and advantages: place, address, rollout_id, reward; advantage, null in rewards)
-- Ranks are among the rollouts that have both rewards; equal rewards share the mean of their ranks (Spearman's rho).
with paired as (
    select
        b.place,
        b.reward as reward_before,
        n.reward as reward_now,
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
    where reward_before is not null and reward_now is not null
    window
        before_order as (partition by place order by reward_before),
        before_ties as (partition by place, reward_before),
        now_order as (partition by place order by reward_now),
        now_ties as (partition by place, reward_now)
),

correlated as (
    select place, corr(rank_before, rank_now) as rank_correlation from ranked group by place
    -- a side with a single value has none: it is not a number
    having isfinite(rank_correlation)
)

select
    place,
    count(*) as rollouts,
    count(*) filter (where reward_before is distinct from reward_now) as changed,
    any_value(rank_correlation) as rank_correlation,
    avg(reward_before) as mean_before,
    avg(reward_now) as mean_now,
    count(*) filter (where reward_before is null) as unscorable_before,
    count(*) filter (where reward_now is null) as unscorable_now,
    count(*) filter (where sign(advantage_before) <> sign(advantage_now)) as advantage_signs_changed
from paired
left join correlated using (place)
group by place
order by place;
