-- SPELL, section 3.3: which questions have a responder group that the batch may take, in the order they are drawn in.
-- grain:  one candidate question
-- inputs: tasks (one row a candidate), rewards (one row a candidate; components of the questioner's reward)
-- bounds: $right_share, $seed
-- Zero variance of 0/1 rewards is a mean of 0 or 1, told by counts: nothing is lost to floating point.
with measured as (
    select
        *,
        components['num_right']::bigint as num_correct,
        nullif(components['num_answers']::bigint, 0) as num_judged
    from rewards
)
select
    t.task_id,
    t.document_id,
    m.num_correct,
    m.num_judged,
    coalesce(m.num_judged, 0) as num_rollouts,
    m.score as mean_score,
    case
        when t.malformed is not null then 'malformed: ' || t.malformed
        when m.components['grounded'] <> 1 then 'answered without documents'
        when m.unscorable is not null then m.unscorable
        when m.score is null then 'not answered'
        when m.num_correct = 0 then 'no answer right'
        when m.num_correct = m.num_judged then 'every answer right'
        when m.num_correct < $right_share * m.components['num_readable'] then 'too few answers right'
    end as reason
from tasks as t
join measured as m using (task_id)
order by md5(t.task_id || '-' || $seed::varchar), t.task_id;
