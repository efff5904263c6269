"""What training on questions about a user's own documents taught, question by question.

    python -m tests.bench.own_documents peps-with-answers-0 [RUN...]

Appends rows to `data/bench/own-documents.jsonl`: the scores of each run's held-out questions, and
paired differences with 95 % intervals, between what is trained, where it started, and the base
model with other prompts. The runs are those of `python -m flows.app.claims peps`, or any of SPELL
with `evaluation.benchmark` and greedy answers.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from flows.runtime.store_root import store_root
from tasks.scorers.accepted import best_overlap, exact
from warehouse.query import query

OUT = Path("data/bench/own-documents.jsonl")
ANSWERS = """
    select
        answers.iteration, regexp_replace(answers.label, '^[0-9]+-tokens-?', '') as prompts,
        tasks.task_id, tasks.reference, tasks.accepted, answers.answer
    from answers
    join tasks on tasks.run = answers.run and tasks.task_id = answers.task_id
        and tasks.phase = 'benchmark'
    where answers.run = $run and answers.phase = 'evaluation'
"""
NORMAL_95 = 1.96
TRAINED = ("after", "start")  # what may have been trained, in this run or before it

METRICS: dict[str, Callable[[Any, str | None], float]] = {
    "exact_match": exact,
    "f1": best_overlap,
}

Scores = Mapping[str, Mapping[str, float]]  # by policy and prompts, then by question


def scores_of(run: str, metric: str) -> Scores:
    """The score of each held-out answer: of the start, of what was trained ("after"), and of the
    base model with other prompts."""
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    score = METRICS[metric]
    for row in query(store_root(), ANSWERS, {"run": run}):
        name = row["prompts"] or "start"
        if row["iteration"]:
            name = "after"
        scores[name][row["task_id"]] = score(row, row["answer"])
    return scores


def difference(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[float, float]:
    """The mean difference over the questions that both answered, and the half width of its 95 %
    interval.

    >>> mean, width = difference({"a": 1, "b": 1, "c": 0}, {"a": 0, "b": 1, "c": 0})
    >>> round(mean, 3), round(width, 3)
    (0.333, 0.653)
    """
    pairs = [first[name] - second[name] for name in first if name in second]
    return fmean(pairs), NORMAL_95 * stdev(pairs) / math.sqrt(len(pairs))


def rows_of(run: str, metric: str, against: str | None = None) -> Iterator[dict[str, object]]:
    """A row for every policy and prompts, and for the differences of what was trained, and of where
    it started, from the others. With `against`, also from the start of that run."""
    scores = dict(scores_of(run, metric))
    for name, by_question in scores.items():
        yield {
            "run": run,
            "of": name,
            "metric": metric,
            "n": len(by_question),
            "score": round(fmean(by_question.values()), 4),
        }
    if against is not None:
        scores[f"start of {against}"] = scores_of(against, metric)["start"]
    for first in TRAINED:
        for name in scores:
            if first in scores and name not in (first, "after"):
                mean, width = difference(scores[first], scores[name])
                yield {
                    "run": run,
                    "of": f"{first} minus {name}",
                    "metric": metric,
                    "n": len(scores[name]),
                    "difference": round(mean, 4),
                    "interval_95": round(width, 4),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--against", metavar="RUN", help="also compare with this run's start")
    args = parser.parse_args()
    with OUT.open("a", encoding="utf-8") as file:
        for run in args.runs:
            for metric in METRICS:
                for row in rows_of(run, metric, args.against):
                    print(row)
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
