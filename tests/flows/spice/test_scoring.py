"""From answers and comparisons to rewards, worked by hand."""

import pytest

from flows.blocks.questions import correctness
from flows.spice.rewards import challenger_rewards, reasoner_rewards
from tests.support.rows import row


def answer(rollout_id, task_id="q", text="7", malformed=None):
    given = {
        "rollout_id": rollout_id,
        "task_id": task_id,
        "prompt_id": f"p-{task_id}",
        "malformed": malformed,
    }
    return row("answers", answer=text, **given)


def match(rollout_id, matched, reason=None):
    return row("matches", rollout_id=rollout_id, matched=matched, reason=reason)


ANSWERS = [
    answer("right"),
    answer("wrong", text="8"),
    answer("unboxed", text=None, malformed="no boxed answer"),
    answer("slow", text="9^{9^9}"),
    answer("failed", text=None, malformed="engine error"),
]
MATCHES = [
    match("right", True),
    match("wrong", False),
    match("unboxed", None, "no boxed answer"),
    match("slow", None, "timed out"),
    match("failed", None, "engine error"),
]


def test_no_box_is_wrong_but_a_failure_of_ours_is_neither_right_nor_wrong():
    found = correctness(ANSWERS, MATCHES)
    assert found == {"right": True, "wrong": False, "unboxed": False, "slow": None, "failed": None}


def challenged(tasks, answers=ANSWERS, matches=MATCHES, left_out=(), reward="variance"):
    rows = challenger_rewards(
        tasks, list(left_out), answers, matches, reward=reward, invalid_reward=-0.1
    )
    return {r["task_id"]: r for r in rows}


def task(task_id, text="Q?", malformed=None):
    return row(
        "tasks",
        task_id=task_id,
        rollout_id=task_id,
        document_id="d",
        text=text,
        malformed=malformed,
    )


def test_a_question_is_paid_by_the_variance_of_the_answers_that_could_be_compared():
    (found,) = challenged([task("q")]).values()
    parts = {
        "valid": 1.0,
        "num_answers": 5.0,
        "num_compared": 3.0,
        "num_correct": 1.0,
        "g_bar": 1 / 3,
    }
    assert found["components"] == pytest.approx(parts)
    assert found["score"] == pytest.approx(1 / 3)
    # p(1 - p) = 2/9; exp(-(1/36)^2 / 0.02)
    assert found["reward"] == pytest.approx(0.9622, abs=5e-5)
    assert found["group_id"] == "d"


def test_the_rivals_pay_the_same_question_otherwise():
    paid = {
        name: challenged([task("q")], reward=name)["q"]["reward"]
        for name in ("absolute_zero", "threshold", "r_zero")
    }
    assert paid == pytest.approx({"absolute_zero": 2 / 3, "threshold": 1.0, "r_zero": 2 / 3})


def test_an_invalid_question_earns_the_penalty_and_one_left_out_nothing():
    tasks = [
        task("bad", None, "no JSON object"),
        task("gone"),
        task("also gone", None, "engine error"),
    ]
    found = challenged(tasks, left_out=[{"task_id": "gone"}, {"task_id": "also gone"}])
    assert set(found) == {"bad"}
    assert (found["bad"]["reward"], found["bad"]["components"]) == (-0.1, {"valid": 0.0})
    assert found["bad"].get("score") is None


def test_a_question_of_which_no_answer_could_be_compared_has_no_reward():
    found = challenged([task("q")], [answer("slow")], [match("slow", None, "timed out")])["q"]
    assert (found["reward"], found["unscorable"]) == (None, "no answer could be compared")


def test_the_reasoner_is_paid_for_drawn_questions_only():
    answers = [*ANSWERS, answer("elsewhere", "other")]
    selections = [{"task_id": "q", "kept": True}, {"task_id": "other", "kept": False}]
    found = {
        r["rollout_id"]: r
        for r in reasoner_rewards(answers, [*MATCHES, match("elsewhere", True)], selections)
    }
    totals = {name: r["reward"] for name, r in found.items()}
    assert totals == {"right": 1.0, "wrong": 0.0, "unboxed": 0.0, "slow": None, "failed": None}
    assert totals == {name: r["score"] for name, r in found.items()}
    unscorable = {name: r["unscorable"] for name, r in found.items() if r["unscorable"]}
    assert unscorable == {"slow": "timed out", "failed": "engine error"}
    assert {r["group_id"] for r in found.values()} == {"p-q"}
