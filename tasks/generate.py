"""Sample rollouts from a policy: the first of the two heavy stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.engines.fleet_child import search_and_roll_out
from tasks.models.engine import Policy, Sampling
from tasks.rollouts.rollout import Dialogue
from tasks.stage import Rows, stage
from warehouse.clean import check_kept
from warehouse.draft import Shards, hash_json
from warehouse.schemas import ROLLOUTS, PromptRow, Rollout
from warehouse.store import Table

SHARD_S = 3.0  # finished rollouts are written to `shards` this often


@stage(ROLLOUTS, tools=("fleet",), code=(search_and_roll_out,))
def generate(  # noqa: PLR0913 -- all that a rollout depends on, and the tools
    prompts: Table,
    *,
    policy: Policy,
    sampling: Sampling,
    dialogue: Dialogue,
    fleet: Fleet | ChatFleet,
    group_size: int = 1,
    index: Table | None = None,
    seed: int = 0,
    ask_again: Callable[[Rollout, PromptRow], Any] | None = None,
    address: str,
    shards: Shards,
) -> Rows:
    """Yield `group_size` rollouts of every prompt, in the order of prompts and samples.

    `index` is the table whose files hold the search index. A prompt with a reply that the reader
    `ask_again` finds malformed is sampled once more with another seed; the rows of both attempts
    are stored, the second attempt's last. There is no second attempt for prompts that got no reply
    (an error, a prompt over the limit), nor on an engine at temperature 0, which would repeat the
    reply.

    Finished rollouts are written to `shards` every few seconds: after a kill, only missing and
    failed rollouts are sampled.

    Raises Cleaned for a policy whose weights were freed.
    """
    # A worked example: prompts p and q, group_size=2, and sample 1 of q cannot be read.
    # Without `ask_again` the rows are (p, 0) (p, 1) (q, 0) (q, 1);
    # with it, the group of q is sampled again, and (q, 0) (q, 1) of the second attempt follow.
    check_kept(prompts.root, policy.adapter or policy.weights, again="*")
    rows = prompts.rows(PromptRow)
    position = {row["prompt_id"]: i for i, row in enumerate(rows)}

    def sample(some_prompts: list[PromptRow], attempt: int) -> list[Rollout]:
        section = f"attempt-{attempt}"
        before_the_kill = cast(list[Rollout], shards.rows(section))
        wanted = {row["prompt_id"] for row in some_prompts}
        # Replies lost in the kill are sampled again and may now be readable. The stored rollouts of
        # a second attempt at their prompts are then no longer wanted.
        done = {
            (rollout["prompt_id"], rollout["sample"]): rollout
            for rollout in before_the_kill
            if rollout["finish_reason"] != "error" and rollout["prompt_id"] in wanted
        }
        new = fleet.roll_out(
            some_prompts,
            policy=policy,
            sampling=sampling,
            dialogue=dialogue,
            index=index_folder(index),
            group_size=group_size,
            seed=int(hash_json([seed, address, attempt])[:15], 16),
            skip=frozenset(done),
            attempt=attempt,
        )
        rollouts = [*done.values(), *_write_shards(new, shards, section)]
        return sorted(rollouts, key=lambda r: (position[r["prompt_id"]], r["sample"]))

    if not rows:
        return
    first_attempt = sample(rows, 0)
    yield from first_attempt
    if ask_again is not None:
        unreadable = {
            rollout["prompt_id"]
            for rollout in first_attempt
            if rollout["finish_reason"] != "error"
            and _is_malformed(rollout, rows[position[rollout["prompt_id"]]], ask_again)
        }
        if unreadable:
            yield from sample([row for row in rows if row["prompt_id"] in unreadable], 1)


def _write_shards(rollouts: Iterator[Rollout], shards: Shards, section: str) -> Iterator[Rollout]:
    """Yield the rollouts and write them to `shards` every few seconds, and when the engine fails.

    If all goes well, the last few are not written to `shards`: the whole table is written instead.
    """
    waiting: list[Rollout] = []
    written_at = time.monotonic()
    try:
        for rollout in rollouts:
            yield rollout
            waiting.append(rollout)
            if time.monotonic() - written_at > SHARD_S:
                shards.write(section, waiting)
                waiting = []
                written_at = time.monotonic()
    except BaseException:
        if waiting:
            shards.write(section, waiting)
        raise


def index_folder(index: Table | None) -> Path | None:
    """The folder of the search index in a table's files."""
    if index is None:
        return None
    return index.files / "index"


def _is_malformed(
    rollout: Rollout, prompt: PromptRow, read: Callable[[Rollout, PromptRow], Any]
) -> bool:
    try:
        read(rollout, prompt)
    except Exception:  # Malformed, or a bug in the reader: `tasks.read` stores which
        return True
    return False
