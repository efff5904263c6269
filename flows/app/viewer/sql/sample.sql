-- grain:  a rollout of a random sample: as many of each stratum as of the others, while there are any
-- inputs: rollouts_table, prompts, replies, advantages, annotations; $run, $stratum, $seed, $n, $role
-- Rollouts are in the order of a hash of id and seed. A template or an outcome is looked up for the first 500 of each role.
with pool as (
    select rollout_id, prompt_id, role, iteration, phase, step
    from rollouts_table
    where run = $run and ($role is null or role = $role)
    qualify
        row_number() over (
            partition by case $stratum when 'iteration' then iteration::varchar when 'phase' then phase else role end
            order by hash(rollout_id || $seed)
        ) <= greatest($n, 500)
),
templates as (
    select prompt_id, any_value(template) as template
    from prompts
    where run = $run and $stratum = 'template' and prompt_id in (select prompt_id from pool)
    group by prompt_id
),
unread as (
    select distinct rollout_id
    from replies
    where run = $run and $stratum = 'outcome' and malformed is not null
),
paid as (
    select rollout_id, any_value(reward) as reward, any_value(advantage) as advantage
    from advantages
    where run = $run and rollout_id in (select rollout_id from pool)
    group by rollout_id
),
placed as (
    select
        pool.*,
        paid.reward,
        paid.advantage,
        case $stratum
            when 'role' then pool.role
            when 'iteration' then pool.iteration::varchar
            when 'phase' then pool.phase
            when 'template' then templates.template
            else case
                when unread.rollout_id is not null then 'malformed'
                when paid.rollout_id is null then 'not rewarded'
                when paid.reward is null then 'unscorable'
                when paid.advantage > 0 then 'above its group'
                when paid.advantage < 0 then 'below its group'
                else 'no contrast'
            end
        end as stratum
    from pool
    left join templates using (prompt_id)
    left join unread using (rollout_id)
    left join paid using (rollout_id)
),
drawn as (
    select *, row_number() over (partition by stratum order by hash(rollout_id || $seed), rollout_id) as place
    from placed
    qualify place <= $n
),
chosen as (
    select * from drawn
    order by place, stratum
    limit $n
),
texts as (
    select rollout_id, any_value(left(reply, 300)) as reply
    from rollouts_table
    where run = $run and rollout_id in (select rollout_id from chosen)
    group by rollout_id
),
said as (
    select subject as rollout_id, any_value(opinion) as opinion, string_agg(distinct labeller, ', ') as labellers
    from annotations
    where run = $run and kind in ('rollout', 'verdict')
    group by subject
)
select chosen.*, texts.reply, said.opinion, said.labellers
from chosen
left join texts using (rollout_id)
left join said using (rollout_id)
order by chosen.place, chosen.stratum
