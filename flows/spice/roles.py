"""SPICE's roles: what each is asked, about which rows, and how its reply is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.spice import readers
from flows.spice.config import SpiceConfig
from flows.spice.readers import FREE_FORM, LETTERS, MULTIPLE_CHOICE
from tasks.prompt import Malformed, Prompt, Row, Template
from tasks.read import UNANSWERED, Reader
from tasks.rollouts.tokens import count_tokens, cut_tokens

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Roles:
    """The prompts and readers of one configuration. The Challenger speaks twice: it chooses, then it asks."""

    chooser: Prompt
    challenger: Prompt
    reasoner: Prompt
    read_choice: Reader
    read_question: Reader
    read_answer: Reader


def make_roles(cfg: SpiceConfig) -> Roles:
    template = functools.partial(Template.load, PROMPTS / cfg.dialogues.prompts)
    c, base = cfg.challenger, cfg.models.base
    show = functools.partial(_segment, model=base, limit=cfg.dialogues.document_tokens, grounded=c.grounded)
    asking = tuple(template(name) for name in (MULTIPLE_CHOICE, FREE_FORM))
    return Roles(
        chooser=Prompt(
            "challenger", (template("choose"),), functools.partial(choose, show, list(c.formats), list(c.answer_types))
        ),
        challenger=Prompt("challenger", asking, functools.partial(challenge, show)),
        reasoner=Prompt("reasoner", (template("reasoner"),), reason),
        read_choice=Reader(
            about_choice, functools.partial(read_choice, formats=c.formats, answer_types=c.answer_types)
        ),
        read_question=Reader(about_question, read_question),
        read_answer=Reader(functools.partial(about_answer, model=base), read_answer),
    )


# ---- what they are asked ------------------------------------------------------------------------------------------


def choose(
    show: Callable[[Row], str],
    formats: list[str],
    answer_types: list[str],
    samples: list[Row],
    documents: list[Row],
    tasks: list[Row],
) -> Iterator[Row]:
    """Challenger, l.6, first call: a document that has no valid question yet."""
    by_id = {d["document_id"]: d for d in documents}
    for sample in without_question(samples, tasks):
        yield {
            "document_id": sample["document_id"],
            "document": show(by_id[sample["document_id"]]),
            "formats": formats,
            "answer_types": answer_types,
        }


def challenge(show: Callable[[Row], str], choices: list[Row], documents: list[Row], tasks: list[Row]) -> Iterator[Row]:
    """Challenger, l.6, second call: the document again, and the type of task chosen for it."""
    by_id = {d["document_id"]: d for d in documents}
    for choice in without_question(choices, tasks):
        if choice["task_type"] is not None:
            letters = choice["task_type"] == MULTIPLE_CHOICE
            yield {
                "template": MULTIPLE_CHOICE if letters else FREE_FORM,
                "document_id": choice["document_id"],
                "task_type": choice["task_type"],
                "answer_type": choice["task_type"],
                "document": show(by_id[choice["document_id"]]),
            }


def reason(tasks: list[Row], left_out: list[Row]) -> Iterator[Row]:
    """Reasoner, l.9 and l.17: the question and its options alone. No document, no reference goes in."""
    absent = {row["task_id"] for row in left_out}
    for task in tasks:
        if task["text"] is not None and task["task_id"] not in absent:
            options = zip(LETTERS, task["options"] or [], strict=False)
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "question": task["text"],
                "options": [{"letter": letter, "text": text} for letter, text in options],
            }


def without_question(rows: list[Row], tasks: list[Row]) -> list[Row]:
    """Those of `rows` whose document has no valid question among `tasks`."""
    asked = {task["document_id"] for task in tasks if task["text"] is not None}
    return [row for row in rows if row["document_id"] not in asked]


# ---- how their replies are read -----------------------------------------------------------------------------------


def about_choice(rollout: Row, prompt: Row) -> Row:
    return {
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "document_id": prompt["document_id"],
    }


def read_choice(rollout: Row, prompt: Row, *, formats: tuple[str, ...], answer_types: tuple[str, ...]) -> Row:
    return {"task_type": readers.read_choice(_finished(rollout), formats, answer_types)}


def about_question(rollout: Row, prompt: Row) -> Row:
    return {
        "task_id": rollout["rollout_id"],
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "document_id": prompt["document_id"],
        "task_type": prompt["task_type"],
        "evidence": [prompt["document_id"]],
    }


def read_question(rollout: Row, prompt: Row) -> Row:
    return readers.read_question(_finished(rollout), prompt["task_type"])


def about_answer(rollout: Row, prompt: Row, *, model: str) -> Row:
    try:
        answer = readers.boxed(rollout["reply"] or "")
    except Malformed:
        answer = ""
    return {
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "task_id": prompt["task_id"],
        "answer_tokens": count_tokens(answer, model),
        "format": {"boxed": float(bool(answer)), "total": float(bool(answer))},
    }


def read_answer(rollout: Row, prompt: Row) -> Row:
    return {"answer": readers.boxed(_finished(rollout))}


def _finished(rollout: Row) -> str:
    if rollout["finish_reason"] != "final":
        raise Malformed(UNANSWERED[rollout["finish_reason"]])
    return rollout["reply"]


def _segment(document: Row, *, model: str, limit: int, grounded: bool) -> str:
    return cut_tokens(document["text"], model, limit) if grounded else ""
