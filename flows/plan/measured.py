"""Mean lengths of each role's conversations in an earlier run, from its tables.

Evaluations are left out, as in a plan, because their tasks are different.
"""

from __future__ import annotations

from warehouse.query import query
from warehouse.store import Store

LENGTHS = """
with lengths as (
    select
        regexp_replace(coalesce(label, role), '-[0-9]+$', '') as asked,
        len(turns[1].context_token_ids) as prompt,
        num_sampled_tokens as sampled,
        num_turns as turns,
        list_sum([len(turn.context_token_ids) for turn in turns[2:] if turn.continues]) as added
    from rollouts
    where run = $run and num_turns > 0 and phase is distinct from 'evaluation'
)
select
    asked as role,
    avg(prompt) as prompt,
    sum(sampled) / sum(turns) as sampled,
    avg(turns) as turns,
    coalesce(sum(added) / nullif(sum(turns - 1), 0), 0) as added
from lengths
group by asked
"""


def measured_lengths(store: Store, run: str) -> dict[str, dict[str, float]]:
    """For each role, the mean numbers of: tokens of a prompt, tokens sampled per turn, turns, and
    tokens added between two turns.

    Raises ValueError for a run that has sampled nothing.
    """
    rows = query(store.root, LENGTHS, {"run": run})
    if not rows:
        raise ValueError(
            f"run {run!r} has no rollouts to measure; `selfplay status` lists the runs"
        )
    return {row.pop("role"): {name: float(value) for name, value in row.items()} for row in rows}
