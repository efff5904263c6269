-- grain: the score of one answer, 0 to 1, and what gave it: a `rule` that compared it with the reference, the metric `score` of
-- a `benchmark`, or the share of the criteria of its `rubric` that a judge held to be met. Null with the reason in `unscored`, or
-- if no verdict could be read. An answer that votes decide has the score of the rule alone.
create view scores as
select run, iteration, phase, step, rollout_id, task_id, 'rule' as scored_by, matched::double as score, reason as unscored
from matches
union all
select run, iteration, phase, step, rollout_id, task_id, 'benchmark', scores['score'], unscored
from item_scores
union all
select run, iteration, phase, step, rollout_id, task_id, 'rubric', avg(verdict), null
from judgments
where expected is null
group by all;
