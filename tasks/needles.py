"""Needles in haystacks: one sentence hidden in other text, at every length and depth of a grid
(Kamradt 2023).

    tasks = number_needles(place, grid=grid, seed=0)  # or needles of a world's own
    sentences = number_sentences(place, grid=grid, seed=0)
    contexts = hide(place, tasks, sentences, filler, grid=grid, count=count, seed=0)
    find(place, tasks, sentences, answers, grid=grid, correct=correct, matches=matches)
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from tasks.read import sampled
from tasks.readers.quotes import verbatim
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import (
    DOCUMENTS,
    NEEDLES,
    RUBRICS,
    TASKS,
    Answer,
    Criterion,
    Document,
    Match,
    Needle,
    Row,
    Task,
    Vote,
)
from warehouse.store import Table

Count = Callable[[str], int]
# whether the answer of each rollout is right, by rollout id; None if unknown
Correct = Callable[[list[Answer], list[Match], list[Vote]], dict[str, bool | None]]
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
    """The cells of the heat map: every length with every depth, as many needles in each."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    lengths: tuple[PositiveInt, ...] = Field(
        min_length=1, description="lengths of the haystacks, in tokens of the policy"
    )
    depths: tuple[float, ...] = Field(
        default=(0.0, 0.25, 0.5, 0.75, 1.0),
        min_length=1,
        description="depths of the needles: 0 is the beginning, 1 the end",
    )
    needles: PositiveInt = Field(default=4, description="number of needles in each cell")

    @property
    def cells(self) -> list[tuple[int, float]]:
        """Length and depth of every needle, in the order of the tasks."""
        return [
            cell
            for cell in itertools.product(self.lengths, self.depths)
            for _ in range(self.needles)
        ]


@dataclass(frozen=True)
class NumberNeedle:
    """A sentence that states a number, and the question that only this sentence answers."""

    task_id: str
    question: str
    number: str
    sentence: str


@stage(TASKS)
def number_needles(*, grid: Grid, seed: int) -> Rows:
    """Yield one question per needle of the grid; it asks for a number that only the needle
    holds."""
    for needle in _draw_numbers(grid, seed):
        yield {
            "task_id": needle.task_id,
            "document_id": needle.task_id,
            "task_type": "needle",
            "difficulty": 1,
            "text": needle.question,
            "reference": needle.number,
        }


@stage(RUBRICS)
def number_sentences(*, grid: Grid, seed: int) -> Rows:
    """Yield the needles of `number_needles`, as criteria of what should be quoted."""
    for needle in _draw_numbers(grid, seed):
        yield only_criterion(needle.task_id, needle.sentence)


def only_criterion(task_id: str, sentence: str) -> Row:
    """A sentence as the only criterion of a task."""
    return {
        "criterion_id": f"{task_id}-0",
        "task_id": task_id,
        "position": 0,
        "criterion": sentence,
        "priority": "critical",
        "weight": 1.0,
    }


def _draw_numbers(grid: Grid, seed: int) -> Iterator[NumberNeedle]:
    rng = random.Random(seed)
    for i in range(len(grid.cells)):
        thing = f"the {rng.choice(COLOURS)} {rng.choice(PLACES)}"
        number = str(rng.randrange(10_000, 100_000))
        yield NumberNeedle(
            task_id=f"needle-{seed}-{i:04d}",
            question=f"What is the access code of {thing}?",
            number=number,
            sentence=f"The access code of {thing} is {number}.",
        )


@dataclass(frozen=True)
class Straw:
    """A sentence of the filler, and its length."""

    text: str
    num_tokens: int


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
    """Yield the haystack of every task: sentences of `filler` with the needle among them.

    The sentences are consecutive and start with a drawn document; the needle goes between two of
    them, as near as possible to the grid's depth. A haystack falls short of the grid's length by
    less than a sentence. `foreign(needle, sentence)` says whether a sentence may be in the same
    haystack as a needle; with None, all may. Raises ValueError if the filler is shorter than a
    haystack.
    """
    needle_of = {row["task_id"]: row["criterion"] or "" for row in sentences.rows(Criterion)}
    documents = list[list[Straw]]()
    for row in rows_of(filler, Document):
        texts = [text for text in SENTENCE.split(row["text"].strip()) if text]
        documents.append([Straw(text, count(text)) for text in texts])
    for i, (task, (length, depth)) in enumerate(zip(tasks.rows(Task), grid.cells, strict=True)):
        needle = needle_of[task["task_id"]]
        shuffled = random.Random(f"{seed} {i}").sample(documents, len(documents))
        straws = (
            straw
            for document in shuffled
            for straw in document
            if foreign is None or foreign(needle, straw.text)
        )
        text = _haystack(straws, needle, length - count(needle), depth)
        yield {
            "document_id": task["document_id"],
            "text": text,
            "source": f"a haystack of {length} tokens, the needle at {depth:g}",
            "num_chars": len(text),
        }


def _haystack(straws: Iterator[Straw], needle: str, room: int, depth: float) -> str:
    """Join straws of at most `room` tokens in total, with the needle between two of them."""
    chosen = list[str]()
    # Sentences of 4, 6 and 5 tokens end at 4, 10 and 15: at depth 0.5 of 15 tokens, the needle
    # follows the second.
    ends = [0]
    for straw in straws:
        if ends[-1] + straw.num_tokens > room:
            break
        chosen.append(straw.text)
        ends.append(ends[-1] + straw.num_tokens)
    else:
        raise ValueError(
            f"the filler has {ends[-1]} tokens, a haystack needs {room}: name more documents"
        )
    place = min(range(len(ends)), key=lambda i: abs(ends[i] - depth * ends[-1]))
    return " ".join([*chosen[:place], needle, *chosen[place:]])


@stage(NEEDLES)
def find(
    tasks: Table,
    sentences: Table,
    answers: Table,
    *,
    grid: Grid,
    correct: Correct,
    matches: Tables = (),
    votes: Tables = (),
) -> Rows:
    """Yield for every sampled answer the length and depth of its needle, whether it quotes the
    needle, and whether it is right.

    `correct` decides whether answers are right, given their matches or votes. `quoted` is None for
    an answer without quotes.
    """
    cell_of = {
        task["task_id"]: cell for task, cell in zip(tasks.rows(Task), grid.cells, strict=True)
    }
    needle_of = {row["task_id"]: row["criterion"] or "" for row in sentences.rows(Criterion)}
    is_right = correct(answers.rows(Answer), rows_of(matches, Match), rows_of(votes, Vote))
    for row in sampled(answers.rows(Answer)):
        length, depth = cell_of[row["task_id"]]
        quoted = None
        if row["evidence"]:
            quoted = verbatim([needle_of[row["task_id"]]], "\n".join(row["evidence"])) == 1
        yield {
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "length_tokens": length,
            "depth": depth,
            "quoted": quoted,
            "correct": is_right[row["rollout_id"]],
        }


def measure(needles: list[Needle]) -> Iterator[tuple[str, float]]:
    """Yield for every answer `score`, 1 if it is right and else 0; the same value as
    `score_<length>_tokens`; and `quoted`, 1 if it quotes the needle and else 0."""
    for row in needles:
        score = float(row["correct"] or 0)
        yield "score", score
        yield f"score_{row['length_tokens']}_tokens", score
        yield "quoted", float(row["quoted"] or 0)
