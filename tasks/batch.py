"""The rows an update trains on: rollouts cut into datums, each with its rollout's advantage."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from tasks.rollouts.rollout import Tokens, datums
from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.schemas import BATCHES, Advantage, Rollout, Row


@stage(BATCHES)
def batch(
    advantages: Tables,
    rollouts: Tables,
    *,
    max_tokens: int | None = None,
    equal_tables: bool = False,
    shuffle_seed: int | str | None = None,
) -> Rows:
    """Yield the datums of every rewarded rollout. Rows of advantage 0 stay: they count in the
    loss's denominator and its KL.

    A rollout without sampled tokens yields nothing. If one datum exceeds `max_tokens`, its whole
    rollout is left out. `equal_tables` scales the advantages so that the mean over all tokens
    equals the sum of one mean per table of advantages. `shuffle_seed` puts the datums in a random
    order, for mini-batches.
    """
    # A worked example: rollout r of advantage 0.5 is one conversation of two turns. It becomes one
    # row (r, datum 0, 0.5). If its model reasons, every turn has its own prompt, and r becomes the
    # rows (r, datum 0, 0.5) and (r, datum 1, 0.5).
    weight_of: dict[str, float] = {}
    if equal_tables:
        weight_of = _table_weights(advantages, rollouts, max_tokens)
    advantage_of = {
        row["rollout_id"]: row["advantage"] * weight_of.get(row["rollout_id"], 1.0)
        for row in rows_of(advantages, Advantage)
    }
    rows = (
        row
        for rollout in rollouts_with("rollout_id", advantage_of, rollouts)
        for row in datum_rows(rollout, advantage_of[rollout["rollout_id"]], max_tokens)
    )
    if shuffle_seed is None:
        return rows
    shuffled = list(rows)
    random.Random(shuffle_seed).shuffle(shuffled)
    return iter(shuffled)


def _table_weights(
    advantages: Tables, rollouts: Tables, max_tokens: int | None
) -> dict[str, float]:
    """The weight of each rollout: the sampled tokens of all tables, divided by those of its own.

    With tables of 300 and 100 tokens, the rollouts of the first weigh 4/3 and those of the second
    4: a mean over all 400 tokens is then the sum of the two tables' means.
    """
    ids_by_table = [[row["rollout_id"] for row in table.rows()] for table in as_tables(advantages)]
    num_tokens = {
        rollout["rollout_id"]: sum(
            sum(datum["loss_mask"]) for datum in _fitting(rollout, max_tokens)
        )
        for rollout in rollouts_with("rollout_id", itertools.chain(*ids_by_table), rollouts)
    }
    total = sum(num_tokens.values())
    weight_of: dict[str, float] = {}
    for ids in ids_by_table:
        own = sum(num_tokens.get(rollout_id, 0) for rollout_id in ids)
        if own:
            weight_of |= dict.fromkeys(ids, total / own)
    return weight_of


def datum_rows(rollout: Rollout, advantage: float, max_tokens: int | None) -> Iterator[Row]:
    """Yield one rollout as rows of `batches`, each with its `advantage`; no rows if any of them
    would have more than `max_tokens` tokens."""
    for number, datum in enumerate(_fitting(rollout, max_tokens)):
        yield {
            "rollout_id": rollout["rollout_id"],
            "datum": number,
            "advantage": advantage,
            **datum,
        }


def _fitting(rollout: Rollout, max_tokens: int | None) -> list[Tokens]:
    """The datums of a rollout; none if any of them is too long."""
    own = list(datums(rollout))
    if max_tokens:
        lengths = (len(d["prompt_token_ids"]) + len(d["completion_token_ids"]) for d in own)
        if any(length > max_tokens for length in lengths):
            return []
    return own


def rollouts_with(column: str, ids: Iterable[str], tables: Tables) -> Iterator[Rollout]:
    """Yield the rollouts whose `column` is one of `ids`. They are read a few at a time, because
    most sampled rollouts are not trained on and prompts are long."""
    wanted = pc.field(column).isin(pa.array(list(ids), pa.string()))
    for table in as_tables(tables):
        for some in table.arrow.filter(wanted).to_batches(max_chunksize=256):
            yield from cast(list[Rollout], some.to_pylist(maps_as_pydicts="strict"))


def sampled_at(rollouts: Tables) -> float:
    """The sampling temperature of the rollouts, from the recipes of their tables.

    Raises ValueError if there are several temperatures, or if replies were constrained to a form:
    such replies are not samples from the policy.
    """
    samplings = [table.recipe["params"]["sampling"] for table in as_tables(rollouts)]
    if any(sampling.get("form") for sampling in samplings):
        raise ValueError(
            "an update cannot train on replies that structured output constrained: remove their"
            " role from `structured`"
        )
    temperatures = {sampling["temperature"] for sampling in samplings}
    if len(temperatures) != 1:
        raise ValueError(
            f"one update cannot train on rollouts of temperatures {sorted(temperatures)}"
        )
    return temperatures.pop()
