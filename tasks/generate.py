"""Sample rollouts from a policy: the first of the two heavy stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tasks.engines.base import Policy, Sampling
from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.engines.fleet_child import search_and_roll_out
from tasks.read import Reader
from tasks.rollouts.rollout import Dialogue
from tasks.stage import Rows, stage
from warehouse.clean import check_kept
from warehouse.draft import Shards, hash_json
from warehouse.schemas import ROLLOUTS, PromptRow, Rollout
from warehouse.store import Table

SHARD_S = 3.0


@stage(ROLLOUTS, tools=("fleet",), code=(search_and_roll_out,))
def generate(
    prompts: Table,
    *,
    policy: Policy,
    sampling: Sampling,
    dialogue: Dialogue,
    fleet: Fleet | ChatFleet,
    num_samples: int = 1,
    index: Table | None = None,
    seed: int = 0,
    ask_again: Callable[[str], Any] | Reader | None = None,
    address: str,
    shards: Shards,
) -> Rows:
    """Yield `num_samples` rollouts of every prompt, in the order of prompts and samples.

    `index` is the table whose files hold the search index. A reply that `ask_again` finds malformed is sampled once
    more with another seed; both rows are stored, the retry last. Finished rollouts are written to `shards` every few
    seconds: after a kill only missing and failed rollouts are sampled.

    Raises Cleaned for a policy whose weights were freed.
    """
    check_kept(prompts.root, policy.adapter or policy.weights, again="*")
    rows = prompts.rows(PromptRow)
    position = {row["prompt_id"]: i for i, row in enumerate(rows)}

    def sample(some: list[PromptRow], attempt: int) -> list[Rollout]:
        section = f"attempt-{attempt}"
        before = cast(list[Rollout], shards.rows(section))
        kept = {(row["prompt_id"], row["sample"]): row for row in before if row["finish_reason"] != "error"}
        new = fleet.roll_out(
            some,
            policy=policy,
            sampling=sampling,
            dialogue=dialogue,
            index=index_folder(index),
            num_samples=num_samples,
            seed=int(hash_json([seed, address, attempt])[:15], 16),
            skip=frozenset(kept),
        )
        found = [*kept.values(), *_kept(new, shards, section)]
        return sorted(found, key=lambda r: (position[r["prompt_id"]], r["sample"]))

    first = sample(rows, 0) if rows else []
    yield from first
    if ask_again is not None:
        unread = {row["prompt_id"] for row in first if _malformed(row, rows[position[row["prompt_id"]]], ask_again)}
        if unread:
            yield from sample([row for row in rows if row["prompt_id"] in unread], 1)


def _kept(rows: Iterator[Rollout], shards: Shards, section: str) -> Iterator[Rollout]:
    """Pass the rows on; write them to `shards` every few seconds, and when the engine fails."""
    waiting: list[Rollout] = []
    written = time.monotonic()
    try:
        for row in rows:
            yield row
            waiting.append(row)
            if time.monotonic() - written > SHARD_S:
                shards.write(section, waiting)
                waiting, written = [], time.monotonic()
    except BaseException:
        if waiting:
            shards.write(section, waiting)
        raise


def index_folder(index: Table | None) -> Path | None:
    return index.files / "index" if index is not None else None


def _malformed(row: Rollout, prompt: PromptRow, read: Callable[[str], Any] | Reader) -> bool:
    try:
        read.read(row, prompt) if isinstance(read, Reader) else read(row["reply"] or "")
    except Exception:  # Malformed, or a reader's fault: `tasks.read` stores which
        return True
    return False
