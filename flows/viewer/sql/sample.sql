-- grain:  a rollout of a random sample: as many of each stratum as of the others, while there are any
-- inputs: rollouts_table, prompts, replies, rewards, annotations; $run, $stratum, $seed, $n, $role
with played as (
    select rollout_id, prompt_id, iteration, phase, step, role, finish_reason, left(reply, 300) as reply
    from rollouts_table
    where run = $run and ($role is null or role = $role)
),
templates as (
    select prompt_id, any_value(template) as template
    from prompts
    where run = $run
    group by prompt_id
),
unread as (
    select distinct rollout_id
    from replies
    where run = $run and malformed is not null
),
paid as (
    select rollout_id, any_value(total) as total, any_value(advantage) as advantage
    from rewards
    where run = $run
    group by rollout_id
),
placed as (
    select
        played.*,
        paid.total,
        paid.advantage,
        case $stratum
            when 'role' then played.role
            when 'iteration' then played.iteration::varchar
            when 'phase' then played.phase
            when 'template' then templates.template
            else case
                when unread.rollout_id is not null then 'malformed'
                when paid.rollout_id is null then 'not rewarded'
                when paid.total is null then 'unscorable'
                when paid.advantage > 0 then 'above its group'
                when paid.advantage < 0 then 'below its group'
                else 'no contrast'
            end
        end as stratum
    from played
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
said as (
    select subject as rollout_id, any_value(opinion) as opinion, string_agg(distinct labeller, ', ') as labellers
    from annotations
    where run = $run and kind in ('rollout', 'verdict')
    group by subject
)
select chosen.*, said.opinion, said.labellers
from chosen
left join said using (rollout_id)
order by chosen.place, chosen.stratum
