-- Grain: document x passage: their best alignment, and whether it drops the document.
-- In: aligned (document, passage, share, bits, density, is_whole, start, end), a row a candidate; passages (number, kind,
-- first_equal: the passage of the same text and kind that was aligned);
-- $min_share, $min_bits, of contexts $part_density, $part_bits, and of questions $question_share, $question_bits,
-- $question_part_bits, $question_edited_share, $question_edited_bits; $reported_share.
with judged as (
    select
        a.*,
        (a.bits >= $min_bits and a.share >= $min_share)
        or (p.kind = 'context' and a.density >= $part_density and a.bits >= $part_bits)
        or (
            p.kind = 'question' and a.share >= $question_share
            and (a.bits >= $question_part_bits or (a.is_whole and a.bits >= $question_bits))
        )
        or (p.kind = 'question' and a.share >= $question_edited_share and a.bits >= $question_edited_bits) as removes
    from aligned as a
    join passages as p on p.number = a.passage
),
best as (
    select document, passage, max_by(judged, (removes, bits, -start)) as j
    from judged
    group by document, passage
),
reported as (
    select document, passage, j.share, j.removes, j.start as span_start, j."end" as span_end
    from best
    where j.removes or j.share >= $reported_share
)
select r.document, p.number as passage, r.share, r.removes, r.span_start, r.span_end
from reported as r
join passages as p on p.first_equal = r.passage
