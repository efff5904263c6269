-- Grain: a document that gives way to another of its family, and that other.
-- In: members (document, family), documents; $keep: longest, first, best or newest.
-- Longest: most characters. First: smallest number. Best: highest score, none the lowest, then longest.
-- Newest: latest date, none the earliest, then the last: later versions stand behind earlier ones. Ties: first.
select
    document,
    first_value(document) over (
        partition by family
        order by
            case when $keep = 'best' then score end desc nulls last,
            case when $keep = 'newest' then date end desc nulls last,
            case when $keep = 'newest' then document end desc nulls last,
            case when $keep in ('best', 'longest') then num_chars end desc nulls last,
            document
    ) as instead
from members
join documents using (document)
qualify document <> instead
