"""Replies as models write them, each with what a careful reader takes from it, to compare with our
readers.

A case has `reader`, `reply` (or `fields`; for `same` also `other`), `expected` and a note.
`expected` is the value to read, plain or as `{"value": ...}`; `{"refuse": true}`, "bad" or null for
a refusal; "drop" for one without penalty; true or false for whether the answer in the reply agrees
with the reference; or `{"either": true}` if both will do.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.eapo import readers as eapo
from flows.eapo.compare import read_scores
from flows.scope import readers as scope
from flows.spell import readers as spell
from flows.spell import rules
from flows.spice import readers as spice
from tasks.prompt import Malformed
from tasks.readers.boxed import last_box
from tasks.readers.marks import mark_out_of_ten
from tasks.readers.named import named_text
from tasks.readers.tags import last_element
from tasks.rollouts.search_syntax import Syntax, find_search
from tasks.scorers import equality as comparison

REPLIES = Path(__file__).parent.parent / "data" / "replies"
WEIGHTS = {"critical": 3.0, "important": 2.0, "bonus": 1.0}
EITHER = {"either": True}
REFUSED = "refused"
DROPPED = "dropped without penalty"

Case = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a case was read. `accepted_wrongly`: a value was read where there should be none or
    another one."""

    case: Case
    read: Any
    right: bool
    accepted_wrongly: bool


def cases(paths: list[Path]) -> Iterator[Case]:
    """The cases in files named `<method>_*.jsonl`."""
    for path in paths:
        method = path.name.partition("_")[0]
        for line in path.read_text(encoding="utf-8").splitlines():
            yield {"method": method, **json.loads(line)}


def play(case: Case) -> Outcome:
    """Read one reply. Exceptions other than Malformed propagate."""
    try:
        read = READERS[case["method"], case["reader"]](case)
    except Malformed as problem:
        read = DROPPED if str(problem) in spell.NO_PENALTY else REFUSED
    wanted = _wanted(case)
    right = wanted == EITHER or _fits(wanted, read)
    return Outcome(case, read, right, not right and read not in (REFUSED, DROPPED, False))


def _wanted(case: Case) -> Any:
    expected = case["fields"][3] if "fields" in case else case["expected"]
    if isinstance(expected, dict):
        return REFUSED if "refuse" in expected else expected.get("value", EITHER)
    return {"bad": REFUSED, "drop": DROPPED, None: REFUSED}.get(expected, expected)


def _fits(wanted: Any, read: Any) -> bool:
    if wanted is False:
        return read in (False, REFUSED)
    if isinstance(wanted, list) and wanted[0] == "has":
        return isinstance(read, str) and wanted[1] in read
    return type(wanted) is type(read) and wanted == read


def _searched(syntax: Syntax, case: Case) -> list[str]:
    found = find_search(case["reply"], syntax)
    if found is None or not found.valid:
        raise Malformed("no search")
    return list(found.queries)


def _rubric(case: Case) -> int:
    return len(scope.read_rubric(case["reply"], 3, 10, WEIGHTS))


def _cluster_question(case: Case) -> str:
    return spell.read_question(case["reply"], case["task_type"], lambda text: len(text.split()))[
        "reference"
    ]


def _covered(case: Case) -> bool:
    return rules.covers(
        {"task_type": case["task_type"], "reference": case["reference"], "options": None},
        spell.read_answer(case["reply"]),
    )


def _choice(case: Case) -> str:
    return spice.read_choice(
        case["reply"], ("multiple_choice", "free_form"), ("Integer", "Expression", "String")
    )


def _question(case: Case) -> str:
    return "ok:" + spice.read_question(case["reply"], case["format"])["reference"]


def _agreed(case: Case) -> bool:
    answer_type, reference, reply = case["fields"][:3]
    task = {"answer_type": answer_type, "reference": reference, "options": None}
    return comparison.agree(task, last_box(reply))


def _in_parts(case: Case) -> dict[str, Any]:
    read = eapo.read_answer({"reply": case["reply"]}, {"messages": []})  # pyright: ignore[reportArgumentType]
    return {"answer": read["answer"], "evidence": read["evidence"]}


def _scores(case: Case) -> list[int]:
    shown = {"rollout_ids": [str(i) for i in range(case["sets"])]}
    marks = read_scores({"reply": case["reply"]}, shown, highest=5)  # pyright: ignore[reportArgumentType]
    assert [row["rollout_id"] for row in marks] == shown["rollout_ids"]
    return [round(1 + 4 * row["mark"]) for row in marks]


def _same(case: Case) -> bool:
    """Two answers to one question, compared in either order, as a vote compares them."""
    pair = (case["reply"], case["other"])
    return any(_agrees(reference, answer) for reference, answer in (pair, pair[::-1]))


def _agrees(reference: str, answer: str) -> bool:
    try:
        return comparison.agree(
            {"answer_type": None, "reference": reference, "options": None}, answer
        )
    except Malformed:
        return False


READERS: dict[tuple[str, str], Callable[[Case], Any]] = {
    ("eapo", "answer"): _in_parts,
    ("eapo", "scores"): _scores,
    ("eapo", "verdict"): lambda case: eapo.read_verdict(case["reply"]),
    ("mae", "mark"): lambda case: mark_out_of_ten(case["reply"]),
    ("mae", "question"): lambda case: last_element(case["reply"], "question"),
    ("mae", "answer"): lambda case: last_element(case["reply"], "answer"),
    ("rzero", "question"): lambda case: named_text(case["reply"], "question"),
    ("rzero", "same"): _same,
    ("scope", "verdict"): lambda case: scope.read_verdict(case["reply"]),
    ("scope", "task"): lambda case: scope.read_task(case["reply"]),
    ("scope", "answer"): lambda case: scope.read_answer(case["reply"]),
    ("scope", "rubric"): _rubric,
    ("scope", "tags"): functools.partial(_searched, "tags"),
    ("scope", "qwen"): functools.partial(_searched, "qwen"),
    ("scope", "olmo"): functools.partial(_searched, "olmo"),
    ("spell", "question"): _cluster_question,
    ("spell", "answer_and_rule"): _covered,
    ("spell", "vote"): lambda case: spell.read_vote(case["reply"]),
    ("spice", "choice"): _choice,
    ("spice", "question"): _question,
    ("spice", "boxed_and_match"): _agreed,
}
