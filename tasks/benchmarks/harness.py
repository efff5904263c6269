"""lm-evaluation-harness as an external stage: it runs in a separate environment with a policy's
weights or a server's address; its sample logs become items, answers and scores."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.benchmarks.item_scores import READABLE, SCORE
from tasks.engines.harness import Harness
from tasks.evaluate import Protocol
from tasks.models.engine import Policy
from tasks.stage import Rows, stage
from warehouse.draft import Draft, hash_json
from warehouse.schemas import ANSWERS, ITEM_SCORES, ITEMS, Row
from warehouse.store import Table

LOGS = "samples"  # folder of the answers' table
log = logging.getLogger("selfplay")


@stage(ANSWERS, tools=("harness",))
def ask_harness(
    *,
    policy: Policy,
    task: str,
    limit: int | None,
    arguments: Sequence[str],
    harness: Harness,
    version: str,
    draft: Draft,
) -> Rows:
    """Yield an answer for every sample of `task`; the logs are among the table's files.

    `arguments` are lm-eval's arguments in addition to those from `harness`; `version` is lm-eval's.

    Raises ValueError if the environment is missing, and RuntimeError with the end of the output if
    the harness fails.
    """
    if shutil.which(harness.python) is None:
        raise ValueError(
            f"there is no lm-eval at {harness.python}: `make harness`, or set"
            " evaluation.harness.python"
        )
    folder = draft.files / LOGS
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as output:
        command = [*harness.command(policy, task, limit, Path(output)), *arguments]
        log.info("%s", " ".join(command))
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        logs = sorted(Path(output).rglob("samples_*.jsonl"))
        if done.returncode or not logs:
            raise RuntimeError(
                f"lm-eval {task} failed ({done.returncode}): {(done.stderr or done.stdout)[-2000:]}"
            )
        for path in logs:
            shutil.copy(path, folder / f"{_task_of(path)}.jsonl")
    for item, rows in samples(folder):
        yield {
            "rollout_id": hash_json([policy.content_hash, item]),
            "prompt_id": rows[0]["prompt_hash"],
            "task_id": item,
            "answer": _answer(rows[-1]),
        }


@stage(ITEMS)
def harness_items(answers: Table) -> Rows:
    """Yield the items of the logged samples: the question and the target."""
    for item, rows in samples(answers.files / LOGS):
        arguments = rows[0]["arguments"]
        yield {
            "task_id": item,
            "kind": item.rpartition("-")[0],
            "text": next(iter(arguments.values()))["arg_0"],
            "options": _options(rows[0]),
            "references": [str(rows[0]["target"])],
            "given": json.dumps(rows[0]["doc"]),
        }


@stage(ITEM_SCORES)
def harness_scores(answers: Table, *, metric: Sequence[str], protocol: Protocol) -> Rows:
    """Yield the metrics of every sample; `score` is the best of those named in `metric`, or else
    the sample's first metric."""
    rollout_of = {row["task_id"]: row["rollout_id"] for row in answers.rows()}
    for item, rows in samples(answers.files / LOGS):
        values = dict(pair for row in rows for pair in metrics(row))
        best = max(values[name] for name in metric or [next(iter(values))])
        scores = {**values, READABLE: 1.0, SCORE: best}
        yield {"rollout_id": rollout_of[item], "task_id": item, "sample": 0, "scores": scores}


def samples(folder: Path) -> Iterator[tuple[str, list[Row]]]:
    """Yield the id of each item with its logged rows, one per filter of its task, from the JSON
    lines in a folder."""
    for path in sorted(folder.glob("*.jsonl")):
        samples_of: dict[str, list[Row]] = {}
        # split only at line feeds: texts may contain other line separators, such as U+2028
        for line in filter(None, path.read_text(encoding="utf-8").split("\n")):
            row = json.loads(line)
            samples_of.setdefault(f"{path.stem}-{row['doc_id']}", []).append(row)
        yield from samples_of.items()


def metrics(row: Row) -> Iterator[tuple[str, float]]:
    """Yield the name and value of a sample's metrics. A filter's name is appended; a list of
    verdicts becomes its mean.

    >>> row = {
    ...     "metrics": ["em", "parts"],
    ...     "em": True,
    ...     "parts": [True, False],
    ...     "filter": "strict-match",
    ... }
    >>> dict(metrics(row))
    {'em_strict-match': 1.0, 'parts_strict-match': 0.5}
    """
    suffix = "" if row["filter"] == "none" else f"_{row['filter']}"
    for name in row["metrics"]:
        values = row[name] if isinstance(row[name], list) else [row[name]]
        if values and all(isinstance(value, bool | int | float) for value in values):
            yield name + suffix, sum(map(float, values)) / len(values)


def _task_of(path: Path) -> str:
    """The task in a file name such as samples_TASK_2026-11-22T04-44-16.594414.jsonl."""
    return path.stem.removeprefix("samples_").rpartition("_")[0]


def _options(row: Row) -> list[str] | None:
    """The continuations that were compared; None if the answer was generated."""
    texts = [argument.get("arg_1") for argument in row["arguments"].values()]
    if all(isinstance(text, str) for text in texts):
        return [text.strip() for text in texts]
    return None


def _answer(row: Row) -> str:
    """The generated text, or the likeliest continuation."""
    options = _options(row)
    response = row["filtered_resps"]
    if options is None:
        return str(response[0] if isinstance(response, list) else response)
    weights: list[Any] = [float(weight) for weight, _ in response]
    return options[weights.index(max(weights))]
