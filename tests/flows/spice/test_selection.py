"""Which attempts form a group, and which question about a document the Reasoner trains on: given
and expected rows."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from flows.spice.flow import LEFT_OUT, NOT_DRAWN, ONE_PER_DOCUMENT
from tasks.keep import Limit, keep
from tests.support.rows import publish, row
from warehouse.store import Table


def attempts(document_id: str, valid: int = 0, invalid: int = 0, failed: int = 0) -> list[dict]:
    kinds = (
        [("v", None)] * valid
        + [("i", "no JSON object")] * invalid
        + [("e", "engine error")] * failed
    )
    return [
        row(
            "tasks",
            task_id=f"{document_id}-{kind}{n}",
            document_id=document_id,
            malformed=malformed,
        )
        for n, (kind, malformed) in enumerate(kinds)
    ]


def left_out(place, *tasks, group_size: int = 8, seed: int = 0) -> Table:
    return keep(
        place,
        LEFT_OUT,
        tasks=publish(place, "tasks", *tasks),
        group_size=group_size,
        seed=seed,
        limits=(Limit(0, NOT_DRAWN),),
        label="left-out",
    )


def group(place, tasks, **bounds) -> list[str]:
    absent = {r["task_id"] for r in left_out(place, *tasks, **bounds).rows()}
    return [t["task_id"] for t in tasks if t["task_id"] not in absent]


# valid and invalid attempts made -> drawn into a group of 8; shares are 8 * valid / attempts,
# rounded half up
@pytest.mark.parametrize(
    ("valid", "invalid", "drawn"),
    [
        (8, 0, (8, 0)),
        (0, 8, (0, 8)),
        (3, 5, (3, 5)),
        (0, 1024, (0, 8)),
        (8, 8, (4, 4)),
        (4, 12, (2, 6)),
        (1, 15, (1, 7)),  # 0.5
        (15, 1, (8, 0)),  # 7.5
        (3, 13, (2, 6)),  # 1.5
        (11, 13, (4, 4)),  # 3.67
        (1, 1023, (1, 7)),  # 0.008: the one valid question is drawn anyway
        (2, 3, (2, 3)),  # fewer attempts than a group
    ],
)
def test_a_group_keeps_the_ratio_of_valid_to_invalid_attempts(place, valid, invalid, drawn):
    found = Counter(t.split("-")[1][0] for t in group(place, attempts("d", valid, invalid)))
    assert (found["v"], found["i"]) == drawn


def test_what_is_left_out_says_why_and_an_engine_error_is_no_attempt(place):
    tasks = attempts("d", valid=2, invalid=14, failed=3)
    found = left_out(place, *tasks).rows()
    assert Counter(r["reason"] for r in found) == {NOT_DRAWN: 8, "engine error": 3}
    assert not any(r["kept"] for r in found)
    assert all(NOT_DRAWN in json.loads(r["bounds"]) for r in found), "a limit, and no test"
    assert Counter(t.split("-")[1][0] for t in group(place.step(9), tasks)) == {"v": 1, "i": 7}


def test_every_document_has_a_group_of_its_own(place):
    tasks = attempts("a", 4, 12) + attempts("b", 16) + attempts("c", 0, 3)
    assert Counter(t.split("-")[0] for t in group(place, tasks)) == {"a": 8, "b": 8, "c": 3}


def test_the_draw_is_the_seeds_and_nothing_elses(place):
    tasks = attempts("d", 20, 20)
    first = group(place, tasks)
    assert set(group(place.step(3), tasks[::-1])) == set(first)
    assert set(group(place.step(4), tasks, seed=1)) != set(first)


def question(task_id, document_id="d", malformed=None, unscorable=None, score=0.5, **parts):
    components = {
        "valid": 1.0,
        "num_answers": 8.0,
        "num_compared": 8.0,
        "num_correct": 4.0,
        **parts,
    }
    paid = {"components": components, "score": score, "unscorable": unscorable}
    return {
        "task": row("tasks", task_id=task_id, document_id=document_id, malformed=malformed),
        "score": row("rewards", task_id=task_id, rollout_id=task_id, **paid),
    }


def drawn(place, *questions, seed: int = 0) -> list[dict]:
    tables = {
        "tasks": publish(
            place, "tasks", *(q["task"] for q in questions), *attempts("x", invalid=1)
        ),
        "rewards": publish(place, "rewards", *(q["score"] for q in questions)),
    }
    limits = (Limit(1, "another question of its document is drawn", per="document_id"),)
    return keep(place, ONE_PER_DOCUMENT, **tables, limits=limits, seed=seed).rows()


def test_one_valid_question_of_a_document_is_drawn_and_the_others_say_why_not(place):
    found = drawn(
        place,
        question("a", malformed="no JSON object", valid=0.0),
        question("b"),
        question("c"),
        question("e", unscorable="no answer could be compared"),
        question("f", "other"),
    )
    reasons = {r["task_id"]: r["reason"] for r in found}
    assert reasons.pop("f") is None
    assert reasons.pop("a") == "invalid question"
    assert reasons.pop("e") == "no answer could be compared"
    assert sorted(map(str, reasons.values())) == [
        "None",
        "another question of its document is drawn",
    ]
    assert all(r["kept"] == (r["reason"] is None) for r in found)
    assert len(found) == 5  # attempts outside the groups have no score, and are not asked again


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_valid_question_may_be_drawn_whatever_its_pass_rate(place, rate):
    (found,) = drawn(place, question("a", score=rate, num_correct=8 * rate))
    assert found["kept"]
    assert (
        found["mean_score"],
        found["num_correct"],
        found["num_judged"],
        found["num_rollouts"],
    ) == (
        rate,
        8 * rate,
        8,
        8,
    )


def test_a_question_that_nobody_was_asked_has_no_answers(place):
    unread = question("a", malformed="no JSON object", score=None)
    unread["score"]["components"] = {"valid": 0.0}
    (found,) = drawn(place, unread)
    assert (found["num_rollouts"], found["num_judged"], found["kept"]) == (0, None, False)


def test_which_question_is_drawn_is_a_seeded_lot_and_uniform(place):
    questions = [question(f"{d}{i}", d) for d in map(str, range(60)) for i in "abcd"]
    kept = [r["task_id"][-1] for r in drawn(place, *questions) if r["kept"]]
    assert len(kept) == 60
    # 15 +- 3.5 each
    assert all(5 <= n <= 27 for n in Counter(kept).values()) and len(Counter(kept)) == 4
    assert kept != [r["task_id"][-1] for r in drawn(place.step(3), *questions, seed=1) if r["kept"]]
