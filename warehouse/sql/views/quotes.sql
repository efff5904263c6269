-- grain: one answer that quotes its context: the quotes, the share of them that are in its prompt word for word, how they
-- were marked where they were compared in the same place, and what the answer earned.
create view quotes as
with marked as (
    select run, iteration, phase, step, rollout_id, arg_max(mark, judge_rollout_id) as mark
    from marks
    where mark is not null
    group by all
)
select
    a.run,
    a.iteration,
    a.phase,
    a.step,
    a.rollout_id,
    a.task_id,
    a.evidence,
    a.verbatim,
    m.mark,
    a.answer,
    r.score,
    r.reward
from answers as a
left join marked as m
    on
        m.run = a.run
        and m.rollout_id = a.rollout_id
        and m.iteration is not distinct from a.iteration
        and m.phase is not distinct from a.phase
        and m.step is not distinct from a.step
left join rewards as r on r.run = a.run and r.rollout_id = a.rollout_id
where a.evidence is not null;
