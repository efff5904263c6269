"""An environment of 25 tasks, and 200 replies to them, compared by the project's own stages."""

from __future__ import annotations

from functools import partial

import pytest

from flows.environments.environment import Environment, Scorer
from tasks.match import match
from tasks.read import Reader, read, reads
from tasks.readers.boxed import last_box
from tasks.readers.copies import Instructions
from tasks.scorers.equality import agree
from tests.support.rows import publish, row, turn
from warehouse.schemas import ANSWERS
from warehouse.store import Store

WORDS = "Give the final answer inside \\boxed{the town of Arvel}, after a word of explanation."
# reference, its type, options
TASKS = [
    *[(str(n), "Integer", None) for n in (0, 7, 12, 100, 1250, -3)],
    *[
        (text, "Expression", None)
        for text in ("1/2", "x^2+1", "\\frac{3}{4}", "2\\pi", "\\sqrt{2}")
    ],
    *[(text, "String", None) for text in ("the Rhine", "Ada Lovelace", "blue", "42 men")],
    *[(letter, "multiple_choice", ["red", "green", "blue", "grey"]) for letter in "ABCD"],
    *[(text, "List", None) for text in ("a, b", "red, green, blue")],
    *[(text, None, None) for text in ("12", "0.5", "Paris", "3 km")],
]
# how a reply answers: with the reference, with something near it, wrongly, or not at all
FORMS = [
    "So \\boxed{{{reference}}}.",
    "<think>\\boxed{{9}}</think> It is $\\boxed{{ {reference} }}$",
    "\\boxed{{\\text{{{reference}}}}}",
    "\\boxed{{{reference}.0}}",
    "\\boxed{{13}}",
    "{reference}",
    "\\boxed{{the town of Arvel}}",
    "not \\boxed{{{reference}}}",
]
HOSTILE = "\\boxed{9^{9^{9^{9}}}}"  # runs until it is killed: the last reply to the first task


@pytest.fixture(scope="module")
def environment() -> Environment:
    rows = [
        {
            "task_id": f"t{i}",
            "text": f"Question {i}?",
            "reference": reference,
            "accepted": None,
            "answer_type": kind,
            "options": options,
            "task_type": None,
            "difficulty": None,
            "document_id": f"d{i // 2}",
            "messages": [{"role": "user", "content": f"Question {i}? {WORDS}"}],
            "criteria": None,
            "split": "test" if i % 5 == 4 else "train",
        }
        for i, (reference, kind, options) in enumerate(TASKS)
    ]
    instructions = Instructions.of([f"{{{{ task }}}} {WORDS}"])
    scorer = Scorer(last_box, whole=True, instructions=instructions.texts, compare=agree)
    return Environment("made-up", rows, scorer)


@pytest.fixture(scope="module")
def replies(environment) -> list[tuple[dict, str]]:
    """(task, reply): 8 replies to each of 25 tasks."""
    pairs = []
    for i, task in enumerate(environment.tasks):
        texts = [form.format(reference=task["reference"]) for form in FORMS]
        if i == 0:
            texts[-1] = HOSTILE
        pairs += [(task, text) for text in texts]
    return pairs


@pytest.fixture(scope="module")
def our_scores(environment, replies, tmp_path_factory) -> list[float | None]:
    """What the stages `read` and `match` make of the replies: 1, 0, or None if unscorable."""
    place = Store(tmp_path_factory.mktemp("scores")).run("r").iteration(1)
    instructions = Instructions(environment.scorer.instructions)
    reader = Reader(reads("answer", last_box).read, whole=True, instructions=instructions)
    prompts = publish(
        place,
        "prompts",
        *[
            row("prompts", prompt_id=task["task_id"], task_id=task["task_id"])
            for task in environment.tasks
        ],
    )
    rollouts = publish(
        place,
        "rollouts",
        *[
            row(
                "rollouts",
                rollout_id=f"r{i:03}",
                prompt_id=task["task_id"],
                reply=reply,
                finish_reason="final",
                turns=[turn(reply)],
            )
            for i, (task, reply) in enumerate(replies)
        ],
    )
    columns = ("task_id", "text", "reference", "answer_type", "options")
    tasks = publish(
        place,
        "tasks",
        *[row("tasks", **{name: task[name] for name in columns}) for task in environment.tasks],
    )
    answers = read(ANSWERS)(place, rollouts, prompts, reader=reader)
    compare = partial(agree)
    matches = match(place, answers, tasks, compare=compare.func, time_limit_s=10.0)
    matched = {row["rollout_id"]: row["matched"] for row in matches.rows()}
    scores: list[float | None] = []
    for answer in answers.rows():
        verdict = matched[answer["rollout_id"]]
        if answer["answer"] is None:
            scores.append(0.0)
        else:
            scores.append(None if verdict is None else float(verdict))
    return scores
