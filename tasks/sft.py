"""The rows of a supervised update (SFT): chosen groups of rollouts, with equal weight on every
sampled token.

    chosen = choose(place, SOUND, rewards=rewards, ...)
    settings = settings.model_copy(update={"objective": "likelihood"})
    update(place, sft(place, rollouts, chosen), settings=settings, ...)
"""

from __future__ import annotations

from tasks.batch import datum_rows, rollouts_with
from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.schemas import BATCHES, Group


@stage(BATCHES)
def sft(rollouts: Tables, chosen: Tables | None, *, max_tokens: int | None = None) -> Rows:
    """Yield the datums of every kept group's rollouts, each with advantage 1; without `chosen`, of
    all rollouts.

    If a reply was asked for again, the last one counts. If one datum exceeds `max_tokens`, its
    whole rollout is left out.
    """
    prompt_ids: list[str] = []
    if chosen is None:
        for table in as_tables(rollouts):
            prompt_ids += table.arrow["prompt_id"].to_pylist()
    else:
        prompt_ids += [row["group_id"] for row in rows_of(chosen, Group) if row["kept"]]
    last_attempt = {
        (rollout["prompt_id"], rollout["sample"]): rollout
        for rollout in rollouts_with("prompt_id", prompt_ids, rollouts)
    }
    for rollout in last_attempt.values():
        yield from datum_rows(rollout, 1.0, max_tokens)
