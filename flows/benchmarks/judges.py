"""Judges of answers to benchmarks: what a judge is shown, and readers of its replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tasks.prompt import Malformed
from tasks.read import of_reply
from tasks.readers.letters import lettered, with_option
from tasks.readers.objects import last_object
from tasks.readers.thoughts import spoken
from tasks.readers.verdicts import bracketed, deciding, yes_or_no
from warehouse.schemas import (
    JUDGMENTS,
    MARKS,
    VOTES,
    Answer,
    Item,
    PromptRow,
    Rollout,
    Row,
    Schema,
)

Rows = list[Row]
DIMENSIONS = ("depth", "structure", "relevance", "accuracy", "completeness")  # of a report


# ---- what a judge is shown ----


def judge_answers(items: list[Item], answers: list[Answer]) -> Iterator[Row]:
    """Yield, for every answer that could be read, the question, the accepted answers and the answer
    to judge. A reference that is a letter is shown with its option."""
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
    """Yield each answer that could be read once, with all criteria of its item's rubric."""
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
    """Yield every answer that could be read together with the baseline's answer, the item's
    `against`, in both orders: `criterion_id` is 0 if the judged answer comes first, 1 if second."""
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


# ---- what a judge replies ----


def read_vote(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], int]) -> Row:
    """The column `vote` of `votes`: 1 if the judge accepts the answer, else 0, as `read` finds in
    the reply. Raises Malformed as `read` does."""
    return {"vote": read(rollout["reply"] or "")}


def read_verdict(rollout: Rollout, prompt: PromptRow) -> Row:
    """The column `verdict` of `judgments`: 1 if the answer meets the criterion, else 0. Raises
    Malformed as `yes_or_no` does."""
    return {"verdict": yes_or_no(rollout["reply"] or "")}


def grade(reply: str) -> int:
    """1 for [[CORRECT]]; 0 for [[INCORRECT]] and [[NOT_ATTEMPTED]]. The last deciding verdict
    counts. Raises Malformed for a reply without a verdict.

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
    """0 if the judge prefers the first answer, [[A]], and 1 if the second, [[B]]. Raises Malformed
    for a reply without a verdict."""
    return bracketed(reply, {"A": 0, "B": 1})


def read_graded_pair(rollout: Rollout, prompt: PromptRow) -> list[Row]:
    """The marks of a comparison for the judged answer: 1 for better, 0.5 for equal, 0 for worse.

    A clear difference gives three marks, so it counts three times (Arena-Hard). Raises Malformed as
    `graded_preference` does.
    """
    advantage = graded_preference(rollout["reply"] or "")
    if prompt["criterion_id"] == "1":  # the judged answer is the second
        advantage = -advantage
    mark = {-1: 0.0, 0: 0.5, 1: 1.0}[(advantage > 0) - (advantage < 0)]
    times = 3 if abs(advantage) == 2 else 1
    return [{"position": position, "mark": mark} for position in range(times)]


def graded_preference(reply: str) -> int:
    """How much better the first answer is, from 2 (clearly better) to -2 (clearly worse). Raises
    Malformed for a reply without a verdict.

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
    """The advantage of A, from 2 to -2, that a grade such as `A>>B` expresses."""
    advantage = {">>": 2, ">": 1, "=": 0, "<": -1, "<<": -2}[grade[2]]
    if grade[1] == "B":
        return -advantage
    return advantage


def read_marks(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], list[float]]) -> Rows:
    """Rows of `marks`: one per mark that `read` finds in a reply, in order. Raises Malformed as
    `read` does."""
    marks = read(rollout["reply"] or "")
    return [{"position": position, "mark": mark} for position, mark in enumerate(marks)]


def scaled(reply: str, *, dimensions: tuple[str, ...], highest: int) -> list[float]:
    """The marks from 1 to `highest` under the keys `dimensions` of a JSON object, scaled to 0..1,
    in the order of `dimensions`.

    Raises Malformed if there is no such object, and for a mark that is missing or off the scale.

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
    """A mark for each point of a rubric. Raises Malformed if the number of ratings is not the one
    that the prompt asks for at its end."""
    ratings = coverage(rollout["reply"] or "")
    num_points = int(_NUM_POINTS.findall(prompt["messages"][-1]["content"])[-1])
    if len(ratings) != num_points:
        raise Malformed(f"{len(ratings)} ratings of {num_points} points")
    return [{"position": position, "mark": mark} for position, mark in enumerate(ratings)]


def coverage(reply: str) -> list[float]:
    """The ratings of a reply, one per line, scaled to 0..1. Raises Malformed if there is none.

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
    """What a judge is shown, the table for its verdicts, and how a reply is read.

    A reply that `ask_again` finds malformed is requested once more (see `generate`).
    """

    variables: Callable[..., Iterator[Row]]
    into: Schema
    read: Callable[[Rollout, PromptRow], Row | Rows]
    ask_again: Callable[[Rollout, PromptRow], Any]


def votes_by(read: Callable[[str], int]) -> Judge:
    """A judge that compares an answer with the accepted ones. `read` turns the reply into the vote:
    1 if the answer is right, else 0."""
    return Judge(judge_answers, VOTES, partial(read_vote, read=read), of_reply(read))


def marks_by(read: Callable[[str], list[float]]) -> Judge:
    """A judge that marks a whole answer, by its item's rubric if there is one. `read` turns the
    reply into marks, 0..1, in a fixed order."""
    return Judge(judge_whole, MARKS, partial(read_marks, read=read), of_reply(read))


# judges by the name of their template
JUDGES = {
    "judge": votes_by(yes_or_no),
    "present": votes_by(yes_or_no),
    "grade": votes_by(grade),
    "true_false_mathematics": votes_by(truth),
    "true_false_choice": votes_by(truth),
    "true_false_truthfulness": votes_by(truth),
    "true_false_general": votes_by(truth),
    "criterion": Judge(judge_criteria, JUDGMENTS, read_verdict, of_reply(yes_or_no)),
    "pair": Judge(judge_pairs, JUDGMENTS, read_preference, of_reply(preference)),
    "pair_graded": Judge(judge_pairs, MARKS, read_graded_pair, of_reply(graded_preference)),
    "report": marks_by(partial(scaled, dimensions=DIMENSIONS, highest=5)),
    "quality": marks_by(partial(scaled, dimensions=("quality",), highest=5)),
    "checklist": marks_by(partial(scaled, dimensions=("score",), highest=10)),
    "coverage": Judge(judge_whole, MARKS, read_coverage, read_coverage),
}
