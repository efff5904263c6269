"""The prompts of benchmarks, made with the templates beside this file, and readers of replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import ascii_uppercase

from flows.benchmarks import FOLDER
from tasks.prompt import Malformed, Template
from tasks.read import UNANSWERED
from tasks.readers.boxed import last_box
from tasks.readers.stated import stated_answer
from tasks.readers.tags import last_element
from tasks.readers.thoughts import spoken
from tasks.readers.verdicts import bracketed
from tasks.rollouts.tokens import count_tokens, cut_middle
from warehouse.schemas import JUDGMENTS, VOTES, Answer, Item, PromptRow, Rollout, Row, Schema

MARKUP = 64  # tokens of a chat template around one message


def templates(prompts: str, name: str) -> Template:
    return Template.load(FOLDER / "prompts" / prompts, name)


def pose(items: list[Item], *, template: Template, model: str, limit: int) -> Iterator[Row]:
    """The question of every item, with its options and its context, and without its reference.

    The middle of the context is cut so that the prompt has at most `limit` tokens of `model`.
    """
    for item in items:
        lettered = zip(ascii_uppercase, item["options"] or [], strict=False)
        options = [{"letter": letter, "text": text} for letter, text in lettered]
        context = ""
        if item["context"]:
            empty = template.render(question=item["text"], options=options, context="")
            rest = count_tokens(empty, model) + MARKUP
            context = cut_middle(item["context"], model, max(1, limit - rest))
        yield {
            "task_id": item["task_id"],
            "task_type": item["kind"],
            "question": item["text"],
            "options": options,
            "context": context,
        }


def judge_answers(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Question, accepted answers and the answer to judge; skips replies without an answer."""
    item_of = {item["task_id"]: item for item in items}
    for answer in answers:
        if answer["answer"] is not None:
            item = item_of[answer["task_id"]]
            option_of = dict(zip(ascii_uppercase, item["options"] or [], strict=False))
            yield {
                "task_id": item["task_id"],
                "rollout_id": answer["rollout_id"],
                "question": item["text"],
                "references": [_with_option(ref, option_of) for ref in item["references"]],
                "answer": answer["answer"],
            }


def _with_option(reference: str, option_of: dict[str, str]) -> str:
    """A reference that is a letter, with the option of that letter.

    >>> _with_option("B", {"A": "1912", "B": "1914"}), _with_option("1914", {})
    ('B) 1914', '1914')
    """
    if reference not in option_of:
        return reference
    return f"{reference}) {option_of[reference]}"


def judge_criteria(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Every answer with each criterion of its item's rubric."""
    item_of = {item["task_id"]: item for item in items}
    for answer in answers:
        if answer["answer"] is not None:
            item = item_of[answer["task_id"]]
            for position, criterion in enumerate(json.loads(item["given"])["criteria"]):
                yield {
                    "task_id": item["task_id"],
                    "rollout_id": answer["rollout_id"],
                    "criterion_id": str(position),
                    "question": item["text"],
                    "answer": answer["answer"],
                    "criterion": criterion["text"],
                }


def judge_pairs(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Every answer beside the baseline's, in both orders: `criterion_id` is 0 if it comes first."""
    item_of = {item["task_id"]: item for item in items}
    for answer in answers:
        if answer["answer"] is not None:
            item = item_of[answer["task_id"]]
            baseline = json.loads(item["given"])["against"]
            orders = ((answer["answer"], baseline), (baseline, answer["answer"]))
            for position, (first, second) in enumerate(orders):
                yield {
                    "task_id": item["task_id"],
                    "rollout_id": answer["rollout_id"],
                    "criterion_id": str(position),
                    "question": item["text"],
                    "first": first,
                    "second": second,
                }


def read_answer(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], str]) -> Row:
    """The answer of a reply, complete or truncated: one that was truncated after its answer
    still counts. Raises Malformed with the reason if there is none."""
    try:
        return {"answer": read(rollout["reply"] or "")}
    except Malformed as problem:
        raise Malformed(UNANSWERED.get(rollout["finish_reason"], str(problem))) from problem


def read_boxed(reply: str) -> str:
    """The last box, or else the answer stated in words."""
    try:
        return last_box(reply)
    except Malformed:
        return stated_answer(reply)


def read_tagged(reply: str) -> str:
    """The last answer element, or else the answer stated in words."""
    try:
        return last_element(reply, "answer")
    except Malformed:
        return stated_answer(reply)


def read_line(reply: str) -> str:
    """The first line with any content."""
    for line in spoken(reply).splitlines():
        if line.strip():
            return line.strip()
    raise Malformed("no line says anything")


def read_whole(reply: str) -> str:
    """All of the reply but its thoughts."""
    text = spoken(reply).strip()
    if not text:
        raise Malformed("nothing is said")
    return text


def read_vote(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"vote": verdict(rollout["reply"] or "")}


def read_verdict(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"verdict": verdict(rollout["reply"] or "")}


def verdict(reply: str) -> int:
    return bracketed(reply, {"YES": 1, "NO": 0})


def read_preference(rollout: Rollout, prompt: PromptRow) -> Row:
    """1 if the judged answer is the better one."""
    return {"verdict": int(preference(rollout["reply"] or "") == int(prompt["criterion_id"] or 0))}


def preference(reply: str) -> int:
    """0 for the first answer, 1 for the second."""
    return bracketed(reply, {"A": 0, "B": 1})


@dataclass(frozen=True)
class Judge:
    """What a judge is asked about, into which table its verdicts go, and how a reply is read.

    A reply that `ask_again` finds malformed is requested once more.
    """

    about: Callable[..., Iterator[Row]]
    into: Schema
    read: Callable[[Rollout, PromptRow], Row]
    ask_again: Callable[[str], int]


# by the name of the template
JUDGES = {
    "judge": Judge(judge_answers, VOTES, read_vote, verdict),
    "criterion": Judge(judge_criteria, JUDGMENTS, read_verdict, verdict),
    "pair": Judge(judge_pairs, JUDGMENTS, read_preference, preference),
}
# by the set of prompts, then by the name of the template
READERS: dict[str, dict[str, Callable[[str], str]]] = {
    "english": {
        "boxed": read_boxed,
        "letter": read_boxed,
        "short": read_tagged,
        "whole": read_whole,
    },
    "lines-2-shot": {"short": read_line},
    "lines-4-shot": {"boxed": read_line},  # its examples are sums
    "lines": {"boxed": read_line, "letter": read_line, "short": read_line, "whole": read_whole},
}
