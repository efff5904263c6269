"""Questions over long contexts from files, the sentences that answer them, and the scores of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from flows import profile
from flows.run import Run
from tasks.accepted import accepted, best_overlap, exact
from tasks.corpus.documents import corpus_identity
from tasks.item_scores import pass_at
from tasks.readers.words import words_of
from tasks.stage import Rows, Tables, rows_by, stage
from warehouse.schemas import ANSWERS, DOCUMENTS, RUBRICS, TASKS, Answer, Match, Row, Task, Vote
from warehouse.store import Place, Table


class Evaluation(profile.Evaluation):
    """The held-out score after every iteration, on a built-in world or on files."""

    benchmark: str = Field(  # type: ignore[assignment]
        default="none", description='"micro", "none" or a .jsonl file in the format of `read_benchmark`'
    )
    temperature: float | None = Field(default=None, ge=0, description="None: as in training")  # type: ignore[assignment]


@dataclass(frozen=True)
class QuestionSet:
    """Questions to train on or to hold out: tasks, their contexts, and the sentences that answers should quote."""

    name: str
    tasks: Table
    contexts: Table
    evidence: Tables = ()

    @classmethod
    def of_run(
        cls, run: Run[Any], name: str, task_types: Collection[str], world: Callable[..., QuestionSet]
    ) -> QuestionSet:
        """The held-out questions that a run's configuration names: "micro", which `world` makes, or a file.

        Raises ValueError if there is no such file.
        """
        cfg, place = run.cfg.evaluation, run.place.iteration(0).phase("benchmark")
        if name == "micro":
            return world(place, seed=cfg.seed, num_tasks=cfg.num_tasks)
        return cls.open(place, name, task_types, label=None if name == cfg.benchmark else Path(name).stem)

    @classmethod
    def open(cls, place: Place, path: str, task_types: Collection[str], label: str | None = None) -> QuestionSet:
        """The questions in a .jsonl file. Raises ValueError if there is no such file."""
        if not Path(path).is_file():
            raise ValueError(f"there is no file {path}: give a .jsonl file of questions, or a built-in world")
        identity = corpus_identity(path)
        tasks = read_benchmark(place, path, task_types=sorted(task_types), identity=identity, label=label)
        contexts = read_contexts(place, path, identity=identity, label=label)
        return cls(Path(path).stem, tasks, contexts, read_evidence(place, path, identity=identity, label=label))


@stage(TASKS)
def read_benchmark(path: str, *, task_types: Collection[str], identity: str) -> Rows:
    """Yield the tasks of a .jsonl file: id, task_type, question, context, answer or answers (a list of all right
    ones), and options (a list) for choices.

    Raises ValueError naming the first line that lacks a field or whose type is not one of `task_types`.
    """
    for number, row in _lines(path):
        if row["task_type"] not in task_types:
            raise ValueError(f"{path}, line {number} has no task_type of {', '.join(task_types)}")
        ids = {"task_id": str(row["id"]), "document_id": str(row["id"]), "task_type": row["task_type"]}
        answers = list(map(str, row["answers"]))
        answers = list(filter(words_of, answers)) or answers
        known = {"reference": answers[0], "accepted": answers if len(answers) > 1 else None}
        yield {**ids, **known, "text": row["question"], "options": row.get("options") or None}


@stage(DOCUMENTS)
def read_contexts(path: str, *, identity: str) -> Rows:
    """Yield the contexts of the same file."""
    for _, row in _lines(path):
        text = row["context"]
        yield {"document_id": str(row["id"]), "text": text, "source": path, "num_chars": len(text)}


@stage(ANSWERS)
def read_second_answers(path: str, *, identity: str) -> Rows:
    """Yield second answers to the questions of the same file: each `second_answer`, if there is one."""
    for _, row in _lines(path):
        if (said := row.get("second_answer")) is not None:
            ids = {"rollout_id": f"{row['id']}-second", "prompt_id": str(row["id"]), "task_id": str(row["id"])}
            yield {**ids, "answer": str(said)}


@stage(RUBRICS)
def read_evidence(path: str, *, identity: str) -> Rows:
    """Yield the sentences that answer each question of the same file: its list `evidence`, if there is one."""
    for _, row in _lines(path):
        yield from evidence_rows(str(row["id"]), row.get("evidence") or ())


def evidence_rows(task_id: str, sentences: Iterable[str]) -> Iterator[Row]:
    """Sentences that an answer has to quote, as criteria."""
    for i, sentence in enumerate(sentences):
        ids = {"criterion_id": f"{task_id}-{i}", "task_id": task_id, "position": i}
        yield {**ids, "criterion": sentence, "priority": "critical", "weight": 1.0}


def _lines(path: str) -> Iterator[tuple[int, Row]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            row = json.loads(line)
            row.setdefault("answers", [row["answer"]] if "answer" in row else [])
            missing = {"id", "task_type", "question", "context"} - row.keys()
            if missing := sorted(missing if row["answers"] else {*missing, "answer"}):
                raise ValueError(f"{path}, line {number} lacks {', '.join(missing)}")
            yield number, row


# ---- answers to them ----------------------------------------------------------------------------------------------


def answers_to_judge(answers: list[Answer], tasks: list[Task]) -> Iterator[Row]:
    """What a judge is asked about each readable answer: question, options, the answer, its reference and all accepted
    answers. The judge sees no document."""
    task_of = {task["task_id"]: task for task in tasks}
    for row in answers:
        if row["answer"] is not None:
            task = task_of[row["task_id"]]
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "rollout_id": row["rollout_id"],
                "question": task["text"],
                "options": task["options"] or [],
                "answer": row["answer"],
                "reference": task["reference"],
                "references": accepted(task),
            }


def measure(
    tasks: list[Task], answers: list[Answer], matches: list[Match], judged: list[Vote], *, passes: tuple[int, ...]
) -> Iterator[tuple[str, float]]:
    """`score` is pass@1, the mean over a task's answers; an answer that is missing or cannot be compared is wrong.

    Multiple choice is scored by the letter alone; other types are right if the rule or the judge says so.
    """
    right_of, answers_of = held_right(matches, judged), rows_by("task_id", answers)
    for task in tasks:
        given, right = answers_of[task["task_id"]], right_of(task)
        num_right = sum(a["rollout_id"] in right for a in given)
        yield "score", num_right / len(given)
        yield f"score_{task['task_type']}", num_right / len(given)
        if task["difficulty"]:
            yield f"score_{task['difficulty'] - 1}_hops", num_right / len(given)
        for k in passes:
            if k <= len(given):
                yield f"pass_at_{k}", pass_at(k, len(given), num_right)
        yield "unanswered", sum(a["answer"] is None for a in given) / len(given)
        if task["task_type"] == "general_qa":
            yield "exact_match", mean([exact(task, a["answer"]) for a in given])
            yield "f1", mean([best_overlap(task, a["answer"]) for a in given])


def held_right(matches: list[Match], judged: list[Vote]) -> Callable[[Task], set[str]]:
    """Answers to a task that the rule or a judge accepts; a choice is scored by its letter alone."""
    by_rule = {row["rollout_id"] for row in matches if row["matched"]}
    by_either = by_rule | {row["rollout_id"] for row in judged if row["vote"]}
    return lambda task: by_rule if task["task_type"] == "multiple_choice" else by_either


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
