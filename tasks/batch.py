"""The rows an update trains on: rollouts cut into datums, each with its rollout's advantage."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from tasks.rollouts.rollout import Tokens, datums
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import BATCHES, Reward, Rollout, Row
from warehouse.store import Table


@stage(BATCHES)
def batch(
    rewards: Tables,
    rollouts: Tables,
    *,
    max_tokens: int | None = None,
    equal_tables: bool = False,
    shuffle_seed: int | None = None,
) -> Rows:
    """Yield the datums of every rewarded rollout. Rows of advantage 0 stay: they count in the loss's denominator and
    its KL.

    A rollout without sampled tokens yields nothing. If one datum exceeds `max_tokens`, its whole rollout is left out.
    `equal_tables` scales the advantages so that the mean over all tokens equals the sum of one mean per table of
    rewards. `shuffle_seed` puts the datums in a random order, for mini-batches.
    """
    weight = _weights(rewards, rollouts, max_tokens) if equal_tables else {}
    advantage = {
        row["rollout_id"]: row["advantage"] * weight.get(row["rollout_id"], 1.0) for row in rows_of(rewards, Reward)
    }
    found = rows_with("rollout_id", advantage, rollouts)
    rows = (row for rollout in found for row in cut(rollout, advantage[rollout["rollout_id"]], max_tokens))
    if shuffle_seed is None:
        return rows
    shuffled = list(rows)
    random.Random(shuffle_seed).shuffle(shuffled)
    return iter(shuffled)


def _weights(rewards: Tables, rollouts: Tables, max_tokens: int | None) -> dict[str, float]:
    """Weight of each rollout: the sampled tokens of all tables over those of its own."""
    tables = [rewards] if isinstance(rewards, Table) else rewards
    members = [[row["rollout_id"] for row in table.rows()] for table in tables]
    tokens = {
        rollout["rollout_id"]: sum(sum(datum["loss_mask"]) for datum in fitting(rollout, max_tokens))
        for rollout in rows_with("rollout_id", itertools.chain(*members), rollouts)
    }
    total, weight = sum(tokens.values()), {}
    for ids in members:
        own = sum(tokens.get(i, 0) for i in ids)
        if own:
            weight |= dict.fromkeys(ids, total / own)
    return weight


def cut(rollout: Rollout, advantage: float, max_tokens: int | None) -> Iterator[Row]:
    for i, datum in enumerate(fitting(rollout, max_tokens)):
        yield {"rollout_id": rollout["rollout_id"], "datum": i, "advantage": advantage, **datum}


def fitting(rollout: Rollout, max_tokens: int | None) -> list[Tokens]:
    """The datums of a rollout; none if any of them is too long."""
    parts = list(datums(rollout))
    too_long = max_tokens and any(
        len(d["prompt_token_ids"]) + len(d["completion_token_ids"]) > max_tokens for d in parts
    )
    return [] if too_long else parts


def rows_with(column: str, ids: Iterable[str], tables: Tables) -> Iterator[Rollout]:
    """Rollouts with these ids, a few at a time: most sampled rollouts are not trained on, and prompts are long."""
    wanted = pc.field(column).isin(pa.array(list(ids), pa.string()))
    for table in [tables] if isinstance(tables, Table) else tables:
        for some in table.arrow.filter(wanted).to_batches(max_chunksize=256):
            yield from cast(list[Rollout], some.to_pylist(maps_as_pydicts="strict"))


def sampled_at(rollouts: Tables) -> float:
    """The temperature of the rollouts, from the recipes of their tables."""
    tables = [rollouts] if isinstance(rollouts, Table) else rollouts
    found = {table.recipe["params"]["sampling"]["temperature"] for table in tables}
    if len(found) != 1:
        raise ValueError(f"one update cannot train on rollouts of temperatures {sorted(found)}")
    return found.pop()
