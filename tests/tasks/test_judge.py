"""Verdicts read from a judge's replies: which answer they judge, the oracle's verdict, and the
one expected."""

import pytest

from tasks.judge import canary_id, read_judgments
from tasks.prompt import Malformed
from tests.support.rows import publish, row, turn

WITHOUT_OWN = {"oracle": None, "expected": None, "malformed": None}


def read(text: str) -> int:
    if text not in ("met", "not met"):
        raise Malformed("no verdict")
    return int(text == "met")


def reply(name: str, text: str = "met", finish: str = "final", prompt: str | None = None) -> dict:
    turns = [turn(text)] if text else []
    given = {"rollout_id": f"j-{name}", "prompt_id": prompt or f"p-{name}", "finish_reason": finish}
    return row("rollouts", reply=text, turns=turns, **given)


def judged(place, replies, about, answers=(), oracle=None):
    """Judgments by judged rollout; `about` maps a prompt to (rollout, criterion)."""
    prompts = [
        row("prompts", prompt_id=f"p-{n}", task_id="t", rollout_id=r, criterion_id=c)
        for n, (r, c) in about.items()
    ]
    rubrics = publish(
        place,
        "rubrics",
        *(row("rubrics", criterion_id=c, criterion=f"states {c}") for c in ("c1", "c2")),
    )
    asked = publish(place, "prompts", *prompts), rubrics, publish(place, "answers", *answers)
    table = read_judgments(
        place, publish(place, "rollouts", *replies), *asked, read=read, oracle=oracle
    )
    return {(r["rollout_id"], r["criterion_id"]): r for r in table.rows()}


def test_a_verdict_belongs_to_an_answer_and_a_criterion(place):
    found = judged(
        place,
        [reply("a"), reply("b", "not met"), reply("c", "perhaps")],
        {"a": ("r1", "c1"), "b": ("r1", "c2"), "c": ("r2", "c1")},
    )
    about = {"task_id": "t", **WITHOUT_OWN}
    assert found["r1", "c1"] == {
        **about, "rollout_id": "r1", "criterion_id": "c1", "verdict": 1, "judge_rollout_id": "j-a"
    }  # fmt: skip
    assert (found["r1", "c2"]["verdict"], found["r1", "c2"]["judge_rollout_id"]) == (0, "j-b")
    assert (found["r2", "c1"]["verdict"], found["r2", "c1"]["malformed"]) == (None, "no verdict")


@pytest.mark.parametrize(
    ("text", "finish", "verdict", "why"),
    [
        ("met", "error", None, "engine error"),
        # a verdict that filled the context is read, like one at the token limit
        ("met", "context", 1, None),
        ("not yet", "context", None, "no room left in the context"),
        ("not yet", "length", None, "no verdict"),
    ],
)
def test_a_verdict_is_read_before_it_is_given_up(place, text, finish, verdict, why):
    found = judged(place, [reply("a", text, finish)], {"a": ("r", "c1")})["r", "c1"]
    assert (found["verdict"], found["malformed"]) == (verdict, why)


def test_a_reader_that_fails_costs_its_reply_only(place):
    rollouts = publish(place, "rollouts", reply("a"), reply("b", "not met"))
    prompts = [
        row("prompts", prompt_id=f"p-{n}", task_id="t", rollout_id=n, criterion_id="c")
        for n in "ab"
    ]

    def broken(text: str) -> int:
        return {"met": 1}[text]

    table = read_judgments(place, rollouts, publish(place, "prompts", *prompts), (), read=broken)
    assert [(r["verdict"], r["malformed"]) for r in table.rows()] == [
        (1, None),
        (None, "reader failed: KeyError"),
    ]


def test_of_a_prompt_that_was_asked_again_the_last_reply_counts(place):
    found = judged(
        place, [reply("a", "perhaps"), reply("again", "not met", prompt="p-a")], {"a": ("r", "c1")}
    )
    assert [(r["verdict"], r["judge_rollout_id"]) for r in found.values()] == [(0, "j-again")]


def test_the_oracle_is_asked_where_answer_and_criterion_are_known_and_may_not_know(place):
    """It knows only c1: whether the answer contains the word. r2 has no answer, r3 is not among
    the answers."""
    answers = [
        row("answers", rollout_id="r1", answer="x c1"),
        row("answers", rollout_id="r2", answer=None),
    ]
    answers.append(row("answers", rollout_id="r4", answer="y"))
    asked = []

    def oracle(criterion: str, answer: str) -> bool | None:
        asked.append((criterion, answer))
        return "c1" in answer if criterion == "states c1" else None

    about = {
        "a": ("r1", "c1"),
        "b": ("r1", "c2"),
        "c": ("r2", "c1"),
        "d": ("r3", "c1"),
        "e": ("r4", "c1"),
    }
    found = judged(place, [reply(n) for n in about], about, answers, oracle)
    assert [r["oracle"] for r in found.values()] == [1, None, None, None, 0]
    assert asked == [("states c1", "x c1"), ("states c2", "x c1"), ("states c1", "y")]


def test_a_canary_says_what_its_verdict_must_be(place):
    ids = canary_id(1, "c1"), canary_id(0, "c1"), "solver-1-x"
    found = judged(
        place, [reply(n) for n in "abc"], {n: (i, "c1") for n, i in zip("abc", ids, strict=True)}
    )
    assert [r["expected"] for r in found.values()] == [1, 0, None]
    assert ids[:2] == ("canary-1-c1", "canary-0-c1")
