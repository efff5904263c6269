"""Two configurations of an exported run that other trainers can load directly.

`conversations`: a rollout as messages, with its reward and advantage; those of held-out tasks are
the split `held_out`. `preferences`: for each group, the rollout with the highest reward as chosen
and the one with the lowest as rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.address import EVALUATION
from warehouse.schemas import Row
from warehouse.table import Table
from warehouse.transcripts import conversation, played

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
PLACE = [
    ("run", pa.string()),
    ("iteration", pa.int32()),
    ("phase", pa.string()),
    ("step", pa.int32()),
    ("role", pa.string()),
    ("prompt_id", pa.string()),
    ("task_id", pa.string()),
]
CONVERSATIONS = pa.schema(
    [
        ("messages", MESSAGES),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        *PLACE,
        ("rollout_id", pa.string()),
        ("policy", pa.string()),
        ("malformed", pa.string()),
        ("unscorable", pa.string()),
    ]
)
PREFERENCES = pa.schema(
    [
        ("prompt", MESSAGES),
        ("chosen", MESSAGES),
        ("rejected", MESSAGES),
        ("chosen_reward", pa.float64()),
        ("rejected_reward", pa.float64()),
        *PLACE,
        ("chosen_rollout_id", pa.string()),
        ("rejected_rollout_id", pa.string()),
    ]
)
GRAINS = {
    "conversations": "a rollout: its prompt and replies as messages, with its reward and advantage",
    "preferences": "a group: its best and its worst rewarded rollout, if their rewards differ",
}
BATCH_ROWS = 1_000
TRAIN = "train"
HELD_OUT = "held_out"


def write_ready(tables: Sequence[Table], folder: Path) -> dict[str, int]:
    """Write both configurations below the folder; returns the number of rows of each that has any.

    A rollout without any sampled reply is in neither.
    """
    counts = {"conversations": 0, "preferences": 0}
    writers: dict[Path, pq.ParquetWriter] = {}
    schemas = {"conversations": CONVERSATIONS, "preferences": PREFERENCES}

    def write(name: str, split: str, rows: list[Row]) -> None:
        if not rows:
            return
        file = folder / name / f"{split}-00000.parquet"
        if file not in writers:
            file.parent.mkdir(parents=True, exist_ok=True)
            writers[file] = pq.ParquetWriter(file, schemas[name], compression="zstd")
        writers[file].write_table(pa.Table.from_pylist(rows, schema=schemas[name]))
        counts[name] += len(rows)

    for place in played(list(tables)):
        waiting: dict[str, list[Row]] = {TRAIN: [], HELD_OUT: []}
        groups: dict[str, list[Row]] = {}
        for table, row, prompt, outcome in place:
            made = _conversation(table, row, prompt, outcome)
            if made is None:
                continue
            split = HELD_OUT if table.at.phase == EVALUATION else TRAIN
            waiting[split].append(made)
            if made["reward"] is not None:
                groups.setdefault(made["prompt_id"], []).append(
                    {**made, "num_told": len(prompt.get("messages") or [])}
                )
            if len(waiting[split]) == BATCH_ROWS:
                write("conversations", split, waiting[split])
                waiting[split] = []
        for split, rows in waiting.items():
            write("conversations", split, rows)
        write("preferences", TRAIN, list(_preferences(groups)))
    for writer in writers.values():
        writer.close()
    return {name: count for name, count in counts.items() if count}


def _conversation(table: Table, row: Row, prompt: Row, outcome: Row) -> Row | None:
    """A row of `conversations`; None if nothing was sampled."""
    if not row["turns"]:
        return None
    place = {"run": table.at.run, "iteration": table.at.iteration}
    return {
        **place,
        "phase": table.at.phase,
        "step": table.at.step,
        "messages": conversation(prompt, row),
        "reward": outcome.get("reward"),
        "advantage": outcome.get("advantage"),
        "role": row["role"],
        "prompt_id": row["prompt_id"],
        "task_id": prompt.get("task_id"),
        "rollout_id": row["rollout_id"],
        "policy": row["policy"],
        "malformed": outcome.get("malformed"),
        "unscorable": outcome.get("unscorable"),
    }


def _preferences(groups: dict[str, list[Row]]) -> Iterator[dict[str, Any]]:
    """Yield each group's best and worst rollout (the first of equals) if their rewards differ."""
    for group in groups.values():
        best = max(group, key=lambda row: row["reward"])
        worst = min(group, key=lambda row: row["reward"])
        if best["reward"] == worst["reward"]:
            continue
        num_told = best["num_told"]
        yield {
            **{name: best[name] for name, _ in PLACE},
            "prompt": best["messages"][:num_told],
            "chosen": best["messages"][num_told:],
            "rejected": worst["messages"][num_told:],
            "chosen_reward": best["reward"],
            "rejected_reward": worst["reward"],
            "chosen_rollout_id": best["rollout_id"],
            "rejected_rollout_id": worst["rollout_id"],
        }
