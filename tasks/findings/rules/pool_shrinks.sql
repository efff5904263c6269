-- title:         fewer tasks to train on, fewer updates
-- severity:      warning
-- sentence:      Kept {what} fell {kept} and updates of the {role} {updates}, from the first iteration to iteration
--                {iteration}.
-- compared with: the updates of the first iteration
-- page:          candidates
-- $most = 0.5:   share of the first iteration's number that is still fine
-- $z = 3:        standard errors between the first and the last count of kept tasks, taken as Poisson counts
-- grain:         a role with fewer updates, and fewer tasks kept, in the last finished iteration
-- inputs:        selections, groups, updates, evaluations; $run
-- An iteration is finished if a later one has begun or its held-out score is known.
with begun as (
    select max(iteration) as last from updates where run = $run
),
finished as (
    select distinct iteration from updates, begun where run = $run and iteration < begun.last
    union
    select distinct iteration from evaluations where run = $run and iteration > 0 and is_held_out(phase, benchmark)
),
decisions as (
    select 'tasks' as what, iteration, phase, kept from selections where run = $run
    union all
    select 'groups', iteration, phase, kept from groups where run = $run
),
kept_of as (
    select what, iteration, phase, count(*) filter (where kept) as num
    from decisions join finished using (iteration)
    group by all
),
made as (
    select distinct role, iteration, phase, step, label from updates where run = $run
),
begins as (
    select role, min(iteration) as since from made group by role
),
-- a later iteration without an update of the role has 0
updates_of as (
    select begins.role, finished.iteration, count(made.iteration) as num
    from begins
    join finished on finished.iteration >= begins.since
    left join made on made.role = begins.role and made.iteration = finished.iteration
    group by all
),
kept as (
    select
        what,
        phase,
        arg_min(num, iteration) as first,
        arg_max(num, iteration) as last,
        max(iteration) as iteration,
        string_agg(num, ' → ' order by iteration) as course
    from kept_of
    group by all
    having count(*) > 1
),
updated as (
    select
        role,
        arg_min(num, iteration) as first,
        arg_max(num, iteration) as last,
        string_agg(num, ' → ' order by iteration) as course
    from updates_of
    group by role
    having count(*) > 1
)
select
    kept.what,
    kept.phase,
    kept.iteration,
    kept.course as kept,
    updated.role,
    updated.course as updates,
    updated.last as number,
    updated.first as compared_with
from kept, updated
where
    kept.last <= $most * kept.first
    and kept.first - kept.last > $z * sqrt(kept.first + kept.last)
    and updated.last <= $most * updated.first
-- updates of 0 may also be a role that the settings freeze: another role says more
order by updated.last = 0, updated.last / updated.first, kept.last / kept.first
limit 1;

-- rows: the candidates of that iteration, with the reason why they were dropped
select iteration, phase, step, task_id, kept, reason, mean_score
from selections
where run = $run and iteration = $iteration and not kept and $what = 'tasks'
union all
select iteration, phase, step, task_id, kept, reason, null
from groups
where run = $run and iteration = $iteration and not kept and $what = 'groups'
order by reason, task_id;
