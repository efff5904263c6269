"""The rows of a supervised update: chosen groups of rollouts, with equal weight on every sampled token.

chosen = choose(place, SOUND, scores=scores, ...)
update(place, imitate(place, rollouts, chosen), settings=settings.model_copy(update={"objective": "likelihood"}), ...)
"""

from __future__ import annotations

from tasks.batch import cut, rows_with
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import BATCHES, Group
from warehouse.store import Table


@stage(BATCHES)
def imitate(rollouts: Tables, chosen: Tables | None, *, max_tokens: int | None = None) -> Rows:
    """Yield the datums of every kept group's rollouts, or of all rollouts without `chosen`, each with advantage 1.

    If a reply was asked for again, the last one counts. If one datum exceeds `max_tokens`, its whole rollout is left
    out.
    """
    if chosen is None:
        given = [rollouts] if isinstance(rollouts, Table) else rollouts
        kept = [prompt_id for table in given for prompt_id in table.arrow["prompt_id"].to_pylist()]
    else:
        kept = [row["group_id"] for row in rows_of(chosen, Group) if row["kept"]]
    last = {(row["prompt_id"], row["sample"]): row for row in rows_with("prompt_id", kept, rollouts)}
    for rollout in last.values():
        yield from cut(rollout, 1.0, max_tokens)
