"""Needles in haystacks: one sentence hidden in other text, at every length and depth of a grid (Kamradt 2023).

tasks    = number_needles(place, grid=grid, seed=0)                # or needles of a world's own
evidence = number_sentences(place, grid=grid, seed=0)
contexts = hide(place, tasks, evidence, filler, grid=grid, count=count, seed=0)
find(place, tasks, evidence, answers, grid=grid, correct=..., matches=matches)
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from tasks.readers.quotes import verbatim
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import DOCUMENTS, NEEDLES, RUBRICS, TASKS, Answer, Criterion, Document, Needle, Task
from warehouse.store import Table

Count = Callable[[str], int]
Correct = Callable[..., dict[str, bool | None]]  # whether each rollout's answer is right, from the tables' rows
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
COLOURS = (
    "amber",
    "black",
    "bronze",
    "copper",
    "coral",
    "green",
    "indigo",
    "ivory",
    "olive",
    "purple",
    "scarlet",
    "white",
)
PLACES = (
    "archive",
    "castle",
    "chapel",
    "garden",
    "harbour",
    "library",
    "lighthouse",
    "market",
    "mill",
    "museum",
    "tower",
)


class Grid(BaseModel):
    """The cells of the heat map: every length with every depth, the same number of needles in each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lengths: tuple[PositiveInt, ...] = Field(min_length=1, description="of the haystacks, in tokens of the policy")
    depths: tuple[float, ...] = Field(default=(0.0, 0.25, 0.5, 0.75, 1.0), min_length=1, description="0 begins, 1 ends")
    needles: PositiveInt = Field(default=4, description="in each cell")

    @property
    def cells(self) -> list[tuple[int, float]]:
        """Length and depth of every needle, in the order of the tasks."""
        return [cell for cell in itertools.product(self.lengths, self.depths) for _ in range(self.needles)]


@stage(TASKS)
def number_needles(*, grid: Grid, seed: int) -> Rows:
    """Yield one question per needle of the grid; it asks for a number that only the needle holds."""
    for task_id, question, number, _ in _numbers(grid, seed):
        about = {"document_id": task_id, "task_type": "needle", "difficulty": 1}
        yield {"task_id": task_id, **about, "text": question, "reference": number}


@stage(RUBRICS)
def number_sentences(*, grid: Grid, seed: int) -> Rows:
    """Yield the needles of `number_needles`, as criteria of what should be quoted."""
    for task_id, _, _, sentence in _numbers(grid, seed):
        yield only_criterion(task_id, sentence)


def only_criterion(task_id: str, sentence: str) -> dict[str, Any]:
    """A sentence as the one criterion of a task."""
    about = {"criterion_id": f"{task_id}-0", "task_id": task_id, "position": 0}
    return {**about, "criterion": sentence, "priority": "critical", "weight": 1.0}


def _numbers(grid: Grid, seed: int) -> Iterator[tuple[str, str, str, str]]:
    rng = random.Random(seed)
    for i in range(len(grid.cells)):
        thing, number = f"the {rng.choice(COLOURS)} {rng.choice(PLACES)}", str(rng.randrange(10_000, 100_000))
        question = f"What is the access code of {thing}?"
        yield f"needle-{seed}-{i:04d}", question, number, f"The access code of {thing} is {number}."


@stage(DOCUMENTS)
def hide(
    tasks: Table,
    sentences: Table,
    filler: Tables,
    *,
    grid: Grid,
    count: Count,
    seed: int,
    foreign: Callable[[str, str], bool] | None = None,
) -> Rows:
    """Yield the haystack of every task: consecutive sentences of `filler`, starting with a drawn document, and the
    needle between two of them. It falls short of the grid's length by less than a sentence.

    `foreign(needle, sentence)` says whether a sentence may stand beside a needle. Raises ValueError if the filler is
    shorter than a haystack.
    """
    needle_of = {row["task_id"]: row["criterion"] or "" for row in sentences.rows(Criterion)}
    documents = [SENTENCE.split(row["text"].strip()) for row in rows_of(filler, Document)]
    counted = [[(sentence, count(sentence)) for sentence in document if sentence] for document in documents]
    for i, (task, (length, depth)) in enumerate(zip(tasks.rows(Task), grid.cells, strict=True)):
        needle = needle_of[task["task_id"]]
        order = random.Random(f"{seed} {i}").sample(counted, len(counted))
        straw = (s for document in order for s in document if foreign is None or foreign(needle, s[0]))
        text = _haystack(straw, needle, length - count(needle), depth)
        source = f"a haystack of {length} tokens, the needle at {depth:g}"
        yield {"document_id": task["document_id"], "text": text, "source": source, "num_chars": len(text)}


def _haystack(straw: Iterator[tuple[str, int]], needle: str, room: int, depth: float) -> str:
    chosen, ends = list[str](), [0]
    for sentence, length in straw:
        if ends[-1] + length > room:
            break
        chosen.append(sentence)
        ends.append(ends[-1] + length)
    else:
        raise ValueError(f"the filler has {ends[-1]} tokens, a haystack needs {room}: name more documents")
    place = min(range(len(ends)), key=lambda i: abs(ends[i] - depth * ends[-1]))
    return " ".join([*chosen[:place], needle, *chosen[place:]])


@stage(NEEDLES)
def find(tasks: Table, sentences: Table, answers: Table, *, grid: Grid, correct: Correct, **outcome: Tables) -> Rows:
    """Yield for every answer the length and depth of its needle, whether it quotes the needle, and whether it is right.
    `correct` takes the rows of `answers` and of the tables in `outcome`."""
    cell_of = {task["task_id"]: cell for task, cell in zip(tasks.rows(Task), grid.cells, strict=True)}
    needle_of = {row["task_id"]: row["criterion"] or "" for row in sentences.rows(Criterion)}
    right = correct(answers.rows(), **{name: rows_of(table) for name, table in outcome.items()})
    for row in answers.rows(Answer):
        length, depth = cell_of[row["task_id"]]
        quotes = row["evidence"]
        yield {
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "length_tokens": length,
            "depth": depth,
            "quoted": verbatim([needle_of[row["task_id"]]], "\n".join(quotes)) == 1 if quotes else None,
            "correct": right[row["rollout_id"]],
        }


def measure(needles: list[Needle]) -> Iterator[tuple[str, float]]:
    """Yield `score`, 1 for a right answer, and the same value again as `score_<length>_tokens`; and `quoted`."""
    for row in needles:
        found = float(row["correct"] or 0)
        yield "score", found
        yield f"score_{row['length_tokens']}_tokens", found
        yield "quoted", float(row["quoted"] or 0)
