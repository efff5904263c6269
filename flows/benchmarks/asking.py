"""The prompts of benchmarks, made with the templates beside this file, and readers of replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.benchmarks import FOLDER
from flows.runtime.templates import load
from flows.settings.prompts import PAPER, prompt_folder
from tasks.prompt import Malformed, Template
from tasks.read import UNANSWERED, Reader
from tasks.readers.boxed import last_box
from tasks.readers.letters import lettered, with_option
from tasks.readers.objects import last_object
from tasks.readers.quotes import quotes_of, verbatim
from tasks.readers.stated import stated_answer
from tasks.readers.tags import last_element
from tasks.readers.thoughts import spoken
from tasks.readers.verdicts import bracketed, deciding
from tasks.rollouts.tokens import count_tokens, cut_middle
from warehouse.schemas import (
    JUDGMENTS,
    MARKS,
    VOTES,
    Answer,
    Item,
    ItemContext,
    PromptRow,
    Rollout,
    Row,
    Schema,
)

Rows = list[Row]
DIMENSIONS = ("depth", "structure", "relevance", "accuracy", "completeness")  # of a report
EMPTY = {"search_example": "", "max_searches": 0}  # what `pose` leaves to the role
MARKUP = 64  # tokens of a chat template around one message


def templates(prompts: str, name: str, trained_with: str = PAPER) -> Template:
    """A template of a set of prompts.

    A name such as `mae/solve` is that of a method's own prompt, in the set that its policies are
    `trained_with`: a name, or the path of a folder.

    Raises ValueError, which names the file, if there is no such template, or if a method's own is
    no Jinja.
    """
    method, _, prompt = name.rpartition("/")
    if method:
        return load(prompt_folder(FOLDER.parent / method, trained_with), prompt)
    return Template.load(FOLDER / "prompts" / prompts, name)


def pose(
    items: list[Item], contexts: Iterable[ItemContext] = (), *, template: Template, model: str
) -> Iterator[Row]:
    """The question of every item, with its options and its context, and without its reference.

    `contexts` says how many tokens of `model` a context keeps, of which the middle is cut out, and
    which items are left out.
    """
    context_of = {row["task_id"]: row for row in contexts}
    for item in items:
        context = item["context"] or ""
        fitted = context_of.get(item["task_id"])
        if fitted is not None:
            if fitted["left_out"] is not None:
                continue
            if fitted["kept_tokens"] < fitted["num_tokens"]:
                context = cut_middle(context, model, fitted["kept_tokens"])
        yield {
            "task_id": item["task_id"],
            "task_type": item["kind"],
            "template": template.name,
            **shown(item, context),
        }


def tokens_around(item: Item, *, template: Template, model: str) -> int:
    """How many tokens of `model` an item's prompt has without its context. `MARKUP` of them are for
    the chat template."""
    return count_tokens(template.render(EMPTY, **shown(item, "")), model) + MARKUP


def shown(item: Item, context: str) -> Row:
    """What a prompt may show of an item. `task` is context and question in one text, for the
    prompts of methods whose tasks have no context of their own."""
    task = item["text"]
    if context:
        task = f"{context}\n\n{task}"
    return {
        "question": item["text"],
        "options": lettered(item["options"]),
        "context": context,
        "task": task,
    }


def judge_answers(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Yield the question, its accepted answers and the answer to judge, for every answer that could
    be read. A reference that is a letter comes with its option."""
    for answer, item in judgeable(items, answers):
        yield {
            "task_id": item["task_id"],
            "rollout_id": answer["rollout_id"],
            "question": item["text"],
            "options": lettered(item["options"]),
            "references": [with_option(ref, item["options"]) for ref in item["references"]],
            "answer": answer["answer"],
        }


def judgeable(items: list[Item], answers: list[Answer]) -> Iterator[tuple[Answer, Item]]:
    """Yield every answer that could be read, with its item; the others are skipped."""
    item_of = {item["task_id"]: item for item in items}
    for answer in answers:
        if answer["answer"] is not None:
            yield answer, item_of[answer["task_id"]]


def judge_criteria(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Yield every answer that could be read with each criterion of its item's rubric.
    `criterion_id` is the criterion's position, from 0."""
    for answer, item in judgeable(items, answers):
        for position, criterion in enumerate(criteria_of(item)):
            yield {
                "task_id": item["task_id"],
                "rollout_id": answer["rollout_id"],
                "criterion_id": str(position),
                "question": item["text"],
                "answer": answer["answer"],
                "criterion": criterion,
            }


def judge_whole(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Yield every answer that could be read once, with all criteria of its item's rubric."""
    for answer, item in judgeable(items, answers):
        yield {
            "task_id": item["task_id"],
            "rollout_id": answer["rollout_id"],
            "question": item["text"],
            "answer": answer["answer"],
            "criteria": criteria_of(item),
        }


def criteria_of(item: Item) -> list[str]:
    """The criteria of an item's rubric; none if it has no rubric."""
    return [criterion["text"] for criterion in json.loads(item["given"]).get("criteria", [])]


def judge_pairs(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Yield every answer that could be read beside the baseline's, which is `against` in the item,
    in both orders: `criterion_id` is 0 if it comes first, 1 if second."""
    for answer, item in judgeable(items, answers):
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
    """The column `answer` of `answers`: what `read` finds in a reply. A reply that was truncated
    after its answer still counts.

    Raises Malformed if there is no answer. Its reason is why the reply is incomplete or, if it is
    complete, what `read` found wrong.
    """
    try:
        return {"answer": read(rollout["reply"] or "")}
    except Malformed as problem:
        raise Malformed(UNANSWERED.get(rollout["finish_reason"], str(problem))) from problem


def read_parts(rollout: Rollout, prompt: PromptRow) -> Row:
    """The answer of a reply in four parts (analysis, evidence, reasoning, answer), its quotes, and
    the share of them that is in the prompt.

    The other parts may be missing: models that were not trained for the form are asked as well.
    Raises Malformed if there is no answer.
    """
    row = read_answer(rollout, prompt, read=read_element)
    try:
        quotes = quotes_of(last_element(rollout["reply"] or "", "evidence"))
    except Malformed:
        return row
    if not quotes:
        return row
    prompt_text = "\n".join(message["content"] for message in prompt["messages"])
    return {**row, "evidence": quotes, "verbatim": verbatim(quotes, prompt_text)}


def read_boxed(reply: str) -> str:
    """The content of the last box, or else the answer stated in words. Raises Malformed if there is
    neither."""
    try:
        return last_box(reply)
    except Malformed:
        return stated_answer(reply)


def read_tagged(reply: str) -> str:
    """The text of the last answer element, or else the answer stated in words. Raises Malformed if
    there is neither."""
    try:
        return last_element(reply, "answer")
    except Malformed:
        return stated_answer(reply)


def read_element(reply: str) -> str:
    """The text of the last answer element: what stands outside of the tags is no answer. Raises
    Malformed if there is none, or if it is empty."""
    return last_element(reply, "answer")


def read_line(reply: str) -> str:
    """The first line with any content.

    Raises Malformed for a reply in which no line says anything.
    """
    for line in spoken(reply).splitlines():
        if line.strip():
            return line.strip()
    raise Malformed("no line says anything")


def read_whole(reply: str) -> str:
    """All of the reply but its thoughts.

    Raises Malformed for an empty reply.
    """
    text = spoken(reply).strip()
    if not text:
        raise Malformed("nothing is said")
    return text


# ---- what a judge replies ----


def read_vote(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], int]) -> Row:
    """The column `vote` of `votes`: 1 for an answer that the judge accepts, 0 for another, as
    `read` finds in the reply. Raises Malformed as `read` does."""
    return {"vote": read(rollout["reply"] or "")}


def read_verdict(rollout: Rollout, prompt: PromptRow) -> Row:
    """The column `verdict` of `judgments`: 1 if the answer meets the criterion, else 0. Raises
    Malformed as `verdict` does."""
    return {"verdict": verdict(rollout["reply"] or "")}


def verdict(reply: str) -> int:
    """1 for [[YES]] and 0 for [[NO]], the last that is meant as the verdict. Raises Malformed for a
    reply without one."""
    return bracketed(reply, {"YES": 1, "NO": 0})


def grade(reply: str) -> int:
    """1 for [[CORRECT]]; 0 for [[INCORRECT]] and [[NOT_ATTEMPTED]]. The last one that is meant as
    the verdict counts. Raises Malformed for a reply without one.

    >>> grade("It names both: [[CORRECT]]"), grade("It says nothing. [[NOT_ATTEMPTED]]")
    (1, 0)
    """
    return bracketed(reply, {"CORRECT": 1, "INCORRECT": 0, "NOT_ATTEMPTED": 0})


def truth(reply: str) -> int:
    """1 for TRUE and 0 for FALSE in the last deciding answer element.

    Raises Malformed for a last word that is neither TRUE nor FALSE.

    >>> truth("<think><answer>FALSE</answer>?</think> <answer> **True** </answer>")
    1
    """
    word = deciding(reply, "answer").strip(" \n*_`'\".[]").upper()
    if word not in ("TRUE", "FALSE"):
        raise Malformed("the answer is neither TRUE nor FALSE")
    return int(word == "TRUE")


def read_preference(rollout: Rollout, prompt: PromptRow) -> Row:
    """The column `verdict` of `judgments`: 1 if the judge prefers the judged answer to the
    baseline's, else 0. Raises Malformed as `preference` does."""
    return {"verdict": int(preference(rollout["reply"] or "") == int(prompt["criterion_id"] or 0))}


def preference(reply: str) -> int:
    """0 if the judge prefers the first answer, [[A]], and 1 for the second, [[B]]. Raises Malformed
    for a reply without a verdict."""
    return bracketed(reply, {"A": 0, "B": 1})


def read_graded_pair(rollout: Rollout, prompt: PromptRow) -> list[Row]:
    """The marks of a comparison for the judged answer: 1 better, 0.5 as good, 0 worse.

    A clear difference is three marks, so that it counts three times (Arena-Hard). Raises Malformed
    as `graded_preference` does.
    """
    advantage = graded_preference(rollout["reply"] or "")
    if prompt["criterion_id"] == "1":  # the judged answer is the second
        advantage = -advantage
    mark = {-1: 0.0, 0: 0.5, 1: 1.0}[(advantage > 0) - (advantage < 0)]
    times = 3 if abs(advantage) == 2 else 1
    return [{"position": position, "mark": mark} for position in range(times)]


def graded_preference(reply: str) -> int:
    """How much better the first answer is: from 2 (clearly) to -2 (clearly worse). Raises Malformed
    for a reply without a verdict.

    >>> graded_preference("The first is livelier. My final verdict is: [[A>B]]")
    1
    >>> graded_preference("Not [[A>>B]]: both tell it well. [[A=B]]")
    0
    """
    named = GRADE.sub(lambda match: f"[[{_GRADES[_sign(match)]}]]", reply)
    return bracketed(named, _VALUES)


GRADE = re.compile(r"\\?\[\\?\[\s*([AB])\s*(>>|>|=|<<|<)\s*([AB])\s*\\?\]\\?\]")
_GRADES = {2: "MUCH_BETTER", 1: "BETTER", 0: "TIE", -1: "WORSE", -2: "MUCH_WORSE"}
_VALUES = {name: value for value, name in _GRADES.items()}


def _sign(grade: re.Match[str]) -> int:
    """What `A>>B` and the like say about A: from 2 to -2."""
    advantage = {">>": 2, ">": 1, "=": 0, "<": -1, "<<": -2}[grade[2]]
    if grade[1] == "B":
        return -advantage
    return advantage


def read_marks(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], list[float]]) -> Rows:
    """Rows of `marks`: what `read` finds in a reply, a row each, in order. Raises Malformed as
    `read` does."""
    marks = read(rollout["reply"] or "")
    return [{"position": position, "mark": mark} for position, mark in enumerate(marks)]


def scaled(reply: str, *, dimensions: tuple[str, ...], highest: int) -> list[float]:
    """The marks 1 to `highest` under the keys `dimensions` of a JSON object, as 0..1, in the order
    of `dimensions`.

    Raises Malformed if there is no such object, and for a dimension that is missing or beyond the
    scale.

    >>> scaled('Good. {"score": "7"}', dimensions=("score",), highest=10)
    [0.6666666666666666]
    """
    marks = last_object(reply, dimensions)
    return [_scaled(marks.get(name), name, highest) for name in dimensions]


def _scaled(value: object, name: str, highest: int) -> float:
    stated = _MARK.fullmatch(str(value).strip())
    if isinstance(value, bool) or stated is None or not 1 <= float(stated[1]) <= highest:
        raise Malformed(f"{name} is no mark from 1 to {highest}")
    if stated[2] is not None and int(stated[2]) != highest:
        raise Malformed(f"{name} is a mark on another scale")
    return (float(stated[1]) - 1) / (highest - 1)


_MARK = re.compile(r"\[?(\d{1,2}(?:\.\d+)?)\]?(?:\s*(?:/|out of)\s*(\d{1,2}))?")


def read_coverage(rollout: Rollout, prompt: PromptRow) -> Rows:
    """A mark for each point of a rubric. Raises Malformed for another number of ratings than the
    prompt ends by asking for."""
    ratings = coverage(rollout["reply"] or "")
    num_points = int(_NUM_POINTS.findall(prompt["messages"][-1]["content"])[-1])
    if len(ratings) != num_points:
        raise Malformed(f"{len(ratings)} ratings of {num_points} points")
    return [{"position": position, "mark": mark} for position, mark in enumerate(ratings)]


def coverage(reply: str) -> list[float]:
    """The ratings of a reply, one a line, as 0..1. Raises Malformed if there is none.

    >>> coverage("1. Completely\\n2. **Barely**\\n3) Cost of storage: not at all.")
    [1.0, 0.25, 0.0]
    """
    lines = (_RATED.fullmatch(line.strip()) for line in spoken(reply).splitlines())
    ratings = [RATINGS.index(line[1].lower()) / (len(RATINGS) - 1) for line in lines if line]
    if not ratings:
        raise Malformed("no line is a rating")
    return ratings


RATINGS = ("not at all", "barely", "moderately", "mostly", "completely")
_RATED = re.compile(rf"(?:.*[\s:.)*_-])?({'|'.join(RATINGS)})[\s*_.]*", re.IGNORECASE)
_NUM_POINTS = re.compile(r"Points: (\d+)")


@dataclass(frozen=True)
class Judge:
    """What a judge is asked about, into which table its verdicts go, and how a reply is read.

    A reply that `ask_again` finds malformed is requested once more (see `generate`).
    """

    variables: Callable[..., Iterator[Row]]
    into: Schema
    read: Callable[[Rollout, PromptRow], Row | Rows]
    ask_again: Callable[[str], Any] | Reader


def votes_by(read: Callable[[str], int]) -> Judge:
    """A judge who compares an answer with the accepted ones. `read` turns the reply into the vote:
    1 if the answer is right, else 0."""
    return Judge(judge_answers, VOTES, partial(read_vote, read=read), read)


def marks_by(read: Callable[[str], list[float]]) -> Judge:
    """A judge who marks a whole answer by its item's rubric, if there is one. `read` turns the
    reply into the marks, 0..1, in a fixed order."""
    return Judge(judge_whole, MARKS, partial(read_marks, read=read), read)


# by the name of the template
JUDGES = {
    "judge": votes_by(verdict),
    "present": votes_by(verdict),
    "grade": votes_by(grade),
    "true_false_mathematics": votes_by(truth),
    "true_false_choice": votes_by(truth),
    "true_false_truthfulness": votes_by(truth),
    "true_false_general": votes_by(truth),
    "criterion": Judge(judge_criteria, JUDGMENTS, read_verdict, verdict),
    "pair": Judge(judge_pairs, JUDGMENTS, read_preference, preference),
    "pair_graded": Judge(judge_pairs, MARKS, read_graded_pair, graded_preference),
    "report": marks_by(partial(scaled, dimensions=DIMENSIONS, highest=5)),
    "quality": marks_by(partial(scaled, dimensions=("quality",), highest=5)),
    "checklist": marks_by(partial(scaled, dimensions=("score",), highest=10)),
    "coverage": Judge(judge_whole, MARKS, read_coverage, Reader(read_coverage)),
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
    "lines-5-shot": {"short": read_line},
    "lines-4-shot": {"boxed": read_line},  # its examples are sums
    "lines": {"boxed": read_line, "letter": read_line, "short": read_line, "whole": read_whole},
}
# by the name that a protocol calls it
PROTOCOL_READERS: dict[str, Callable[[Rollout, PromptRow], Row]] = {
    "boxed": partial(read_answer, read=read_boxed),
    "tagged": partial(read_answer, read=read_tagged),
    "element": partial(read_answer, read=read_element),
    "stated": partial(read_answer, read=stated_answer),
    "parts": read_parts,
    "whole": partial(read_answer, read=read_whole),
}
