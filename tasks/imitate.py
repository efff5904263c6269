"""The rows of a supervised update: chosen groups of rollouts, of which every sampled token is learnt alike.

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
    """Yield the datums of the rollouts of every group that is kept, or of all where nobody chose, each of advantage 1.

    Where a reply was asked for again, the last one counts. A datum above `max_tokens` is left out with all of its
    rollout's.
    """
    if chosen is None:
        given = [rollouts] if isinstance(rollouts, Table) else rollouts
        kept = [prompt_id for table in given for prompt_id in table.arrow["prompt_id"].to_pylist()]
    else:
        kept = [row["group_id"] for row in rows_of(chosen, Group) if row["kept"]]
    last = {(row["prompt_id"], row["sample"]): row for row in rows_with("prompt_id", kept, rollouts)}
    for rollout in last.values():
        yield from cut(rollout, 1.0, max_tokens)
