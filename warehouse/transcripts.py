"""Export a run's conversations in the Parquet layout of Inspect Scout: one row per rollout.

Scout's own columns come first, then this project's, which Scout treats as metadata. A conversation
holds the prompt, each reply, and the message that followed it. A reasoning model reads its earlier
turns without their thoughts; here every turn is whole.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.clean import cleaned
from warehouse.new_folder import new_folder
from warehouse.schemas import PROMPTS, ROLLOUTS, Row
from warehouse.store import Store
from warehouse.table import Table

TEXT = pa.large_string()
NUMBER = pa.int64()
TYPES = {"score": TEXT, "advantage": pa.float64(), "trust_content": pa.bool_()} | dict.fromkeys(
    ("task_repeat", "message_count", "total_tokens", "iteration", "step", "num_searches", "seed"),
    NUMBER,
)
SCOUT = (
    "transcript_id source_type source_id date task_set task_id task_repeat agent model"
    " model_options score score_explanation message_count total_tokens error limit trust_content"
    " messages"
)
OURS = (
    "run iteration phase step label prompt_id template template_version document_id policy_hash"
    " seed finish_reason num_searches malformed advantage"
)
COLUMNS = pa.schema([(name, TYPES.get(name, TEXT)) for name in f"{SCOUT} {OURS}".split()])
# finish reason -> the limit that was reached
LIMITS = {"length": "tokens", "context": "context", "turns": "turns"}
ROLES = ("system", "user", "assistant", "tool")
BATCH_ROWS = 1_000
FILE_ROWS = 50_000


def write_transcripts(store: Store, run: str, folder: Path) -> int:
    """Write FOLDER/transcripts_*.parquet; returns the number of rollouts.

    Raises ValueError for a run without rollouts or whose rollouts were cleaned away, or a folder
    that is not empty.
    """
    tables = [table for table in store.tables(run) if table.has_rows]
    if not any(table.schema is ROLLOUTS for table in tables):
        if cleaned(store, run)[ROLLOUTS.name]:
            raise ValueError(
                f"the rollouts of {run} were cleaned away: `selfplay rerun {run} rollouts` samples"
                " them again"
            )
        raise ValueError(f"there is no run {run!r} with rollouts; `selfplay status` lists the runs")
    flow = (store.kept(run, "request.json") or {}).get("flow", "")
    with new_folder(folder) as partial:
        return _write(_transcripts(tables, flow), partial)


def _write(rows: Iterator[Row], folder: Path) -> int:
    total = 0
    for number in itertools.count():
        first = list(itertools.islice(rows, BATCH_ROWS))
        if not first:
            return total
        others = _batches(itertools.islice(rows, FILE_ROWS - BATCH_ROWS))
        file = folder / f"transcripts_{number:05d}.parquet"
        with pq.ParquetWriter(file, COLUMNS, compression="zstd") as writer:
            for batch in itertools.chain([first], others):
                writer.write_table(pa.Table.from_pylist(batch, schema=COLUMNS))
                total += len(batch)
    return total


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := list(itertools.islice(rows, BATCH_ROWS)):
        yield some


def _transcripts(tables: list[Table], flow: str) -> Iterator[Row]:
    for place in played(tables):
        for table, row, prompt, outcome in place:
            yield _transcript(table, row, prompt, outcome, flow)


# a rollout: its table, its row, its prompt, and what other tables say about it
Played = tuple[Table, Row, Row, Row]


def played(tables: list[Table]) -> Iterator[Iterator[Played]]:
    """Yield all rollouts with their prompts and outcomes, place by place.

    The prompts, rewards and parsed replies of rollouts are at the same place.
    """

    def place(table: Table) -> tuple[Any, ...]:
        return table.at.iteration or 0, table.at.phase or "", table.at.step or 0

    for _, group in itertools.groupby(sorted(tables, key=place), place):
        at_place = list(group)
        rollouts = [table for table in at_place if table.schema is ROLLOUTS]
        if rollouts:
            yield _played_at(rollouts, at_place)


def _played_at(rollouts: list[Table], at_place: list[Table]) -> Iterator[Played]:
    prompts = {
        row["prompt_id"]: row
        for table in at_place
        if table.schema is PROMPTS
        for row in table.rows()
    }
    outcomes = _outcomes(at_place)
    for table in rollouts:
        for batch in table.batches():
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                prompt = prompts.get(row["prompt_id"], {})
                yield table, row, prompt, outcomes.get(row["rollout_id"], {})


def _outcomes(tables: Iterable[Table]) -> dict[str, Row]:
    """The outcomes of rollouts that other tables hold, by rollout id.

    An outcome is a rollout's reward, its advantage, and why it is malformed or unscorable.
    """
    outcomes: dict[str, Row] = {}
    for table in tables:
        if "reward" in table.schema.arrow.names:
            for row in table.rows():
                outcome = outcomes.setdefault(row["rollout_id"], {})
                for name in ("reward", "unscorable", "advantage"):
                    if name in row:
                        outcome[name] = row[name]
        if table.schema.parsed:
            for row in table.rows():
                rollout = row[table.schema.parsed.rollout]
                if rollout:
                    outcomes.setdefault(rollout, {})["malformed"] = row["malformed"]
    return outcomes


def conversation(prompt: Row, row: Row) -> list[Row]:
    """The messages of a rollout, as role and content.

    These are its prompt and its replies, each with the message that followed it.
    """
    return [
        {"role": message["role"], "content": message["content"]}
        for message in _messages(prompt.get("messages") or [], row)
    ]


def _transcript(table: Table, row: Row, prompt: Row, outcome: Row, flow: str) -> Row:
    messages = [*_messages(prompt.get("messages") or [], row)]
    reward = outcome.get("reward")
    sampling = table.recipe.get("params", {}).get("sampling")
    made = {
        "transcript_id": row["rollout_id"],
        "source_type": "selfplay",
        "source_id": table.at.run,
        "date": datetime.fromtimestamp(table.recipe.get("started_at", 0), UTC).isoformat(),
        "task_set": flow,
        "task_repeat": row["sample"],
        "agent": row["role"],
        "model": row["policy"],
        "model_options": None if sampling is None else json.dumps(sampling),
        "score": None if reward is None else json.dumps(reward),
        "score_explanation": outcome.get("unscorable"),
        "message_count": len(messages),
        "total_tokens": row["num_sampled_tokens"],
        "limit": LIMITS.get(row["finish_reason"]),
        "trust_content": False,
        "messages": json.dumps(messages, ensure_ascii=False),
        **{
            name: getattr(table.at, name) for name in ("run", "iteration", "phase", "step", "label")
        },
        "malformed": outcome.get("malformed"),
        "advantage": outcome.get("advantage"),
    }
    rest = {name: row.get(name, prompt.get(name)) for name in COLUMNS.names if name not in made}
    return {**made, **rest}


def _messages(prompt_messages: list[Row], row: Row) -> Iterator[Row]:
    for message in prompt_messages:
        yield _message(message["role"], message["content"], source="input")
    for turn in row["turns"] or []:
        yield _message("assistant", turn["text"], source="generate", model=row["policy"])
        if turn["message"] is not None:
            yield _message(turn["message_role"] or "user", turn["message"])


def _message(role: str, content: str, **more: str) -> Row:
    return {"role": role if role in ROLES else "user", "content": content, **more}
