-- grain:  one iteration
-- inputs: tasks; $run, $iteration (the last one to show)
-- How far the words of an iteration's tasks lie from those of the first: Jensen-Shannon divergence in bits, 0 the same,
-- 1 no word in common (Lin 1991). `halves` is what two halves of the iteration's own tasks differ by: below it is noise.
with words as (
    select
        iteration,
        hash(task_id) % 2 as half,
        unnest(regexp_extract_all(lower(text), '\p{L}{3,}')) as word
    from tasks
    where run = $run and iteration <= $iteration and iteration >= 1 and text is not null
),

counted as (
    select 'first' as side, other.iteration, words.word
    from words cross join (select distinct iteration from words) as other
    where words.iteration = (select min(iteration) from words)
    union all
    select 'now', iteration, word from words
    union all
    select 'half-' || half, iteration, word from words
),

shares as (
    select side, iteration, word, count(*) / sum(count(*)) over (partition by side, iteration) as share
    from counted
    group by side, iteration, word
),

pairs as (
    select unnest(['drift', 'halves']) as name, unnest(['first', 'half-0']) as one, unnest(['now', 'half-1']) as other
),

matched as (
    select
        pairs.name,
        shares.iteration,
        shares.word,
        sum(shares.share) filter (where shares.side = pairs.one) as p,
        sum(shares.share) filter (where shares.side = pairs.other) as q
    from shares inner join pairs on shares.side in (pairs.one, pairs.other)
    group by pairs.name, shares.iteration, shares.word
),

divergence as (
    select
        name,
        iteration,
        0.5 * coalesce(sum(p * log2(2 * p / (p + coalesce(q, 0)))), 0)
        + 0.5 * coalesce(sum(q * log2(2 * q / (coalesce(p, 0) + q))), 0) as bits
    from matched
    group by name, iteration
)

select
    iteration,
    max(bits) filter (where name = 'drift') as drift,
    max(bits) filter (where name = 'halves') as halves
from divergence
group by iteration
order by iteration;
