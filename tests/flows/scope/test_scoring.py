from typing import Any

import pytest

from flows.scope.config import ChallengerReward, SolverReward
from flows.scope.rewards import challenger_rewards, solver_rewards
from tests.support.rows import row

GOOD = {"total": 1.0, "think": 1.0, "tool": 1.0, "structure": 1.0}


def task(
    task_id: str = "t", text: str | None = "a task", form: dict | None = None, **given: Any
) -> dict:
    malformed = None if text is not None else "no task element"
    given = {"task_id": task_id, "prompt_id": "p", "malformed": malformed, **given}
    return row("tasks", text=text, format=form or GOOD, **given)


def rubric(weights: list[float], task_id: str = "t") -> list[dict]:
    about = {"task_id": task_id, "priority": "critical"}
    return [
        row(
            "rubrics",
            criterion_id=f"{task_id}-{i}",
            position=i,
            criterion=f"Names {i}.",
            weight=w,
            **about,
        )
        for i, w in enumerate(weights)
    ]


def answer(rollout_id: str, text: str | None = "an answer", **given: Any) -> dict:
    form = {"total": 1.0, "think": 1.0, "tool": 1.0, "answer": 1.0}
    about = {
        "rollout_id": rollout_id,
        "task_id": "t",
        "prompt_id": "p",
        "answer_tokens": 0,
        "num_searches": 0,
    }
    return row("answers", **{**about, "answer": text, "format": form, **given})


def verdicts(rollout_id: str, *given: int | None, **more: Any) -> list[dict]:
    about = {"rollout_id": rollout_id, "task_id": "t", **more}
    return [
        row("judgments", criterion_id=f"{about['task_id']}-{i}", verdict=v, **about)
        for i, v in enumerate(given)
    ]


def gate(passed: bool | None, name: str = "entity") -> dict:
    return row("gates", task_id="t", gate=name, kind="model", passed=passed)


def propose(tasks=None, rubrics=None, answers=(), judgments=(), gates=None, **settings) -> dict:
    rubrics = rubric([1, 1, 1]) if rubrics is None else rubrics
    gates = [gate(True)] if gates is None else gates
    given = {"settings": ChallengerReward(**settings), "min_coverage": 0.5}
    rows = list(
        challenger_rewards(
            tasks or [task()], rubrics, list(answers), list(judgments), gates, **given
        )
    )
    assert len(rows) == len(tasks or [1])
    return rows[0]


def solve(answers, judgments=(), rubrics=None, **settings) -> list[dict]:
    rubrics = rubric([1, 1, 1, 1]) if rubrics is None else rubrics
    return list(
        solver_rewards(
            answers, rubrics, list(judgments), settings=SolverReward(**settings), min_coverage=0.5
        )
    )


def test_difficulty_is_the_mean_over_the_rollouts_that_count():
    # a: 3 of 3; b: 0 of 3; c has no answer, d one verdict of three: neither counts. g_bar = 1/2,
    # the tent's peak
    answers = [answer("a"), answer("b"), answer("c", None), answer("d")]
    judged = [*verdicts("a", 1, 1, 1), *verdicts("b", 0, 0, 0), *verdicts("d", 1, None, None)]
    found = propose(answers=answers, judgments=judged)
    assert found["reward"] == 1.5
    expected = {
        "g_bar": 0.5,
        "difficulty": 1.0,
        "num_rollouts": 2,
        "num_met": 3,
        "num_criteria": 6,
        "passed_gates": 1,
    }
    assert {k: found["components"][k] for k in expected} == expected
    assert found["score"] == 0.5


@pytest.mark.parametrize(
    ("given", "g_bar", "num_rollouts"),
    [
        # exactly half have a verdict: it counts, and the others are not met
        ((1, 1, None, None), 0.5, 1),
        ((1, 0, None, None), 0.25, 1),
        ((1, None, None, None), None, 0),
        ((None, None, None, None), None, 0),
        ((1, 1, 1, None), 0.75, 1),
    ],
)
def test_a_rollout_counts_from_half_of_its_criteria_on(given, g_bar, num_rollouts):
    found = propose(rubrics=rubric([1] * 4), answers=[answer("a")], judgments=verdicts("a", *given))
    assert found["components"].get("g_bar") == found["score"] == g_bar
    assert found["components"]["num_rollouts"] == num_rollouts
    difficulty = 0 if g_bar is None else 1 - abs(g_bar - 0.5) / 0.5
    assert found["reward"] == 0.5 + difficulty


def test_a_criterion_that_nobody_judged_counts_as_not_met():
    found = propose(rubrics=rubric([1] * 4), answers=[answer("a")], judgments=verdicts("a", 1, 1))
    assert found["components"]["g_bar"] == 0.5


def test_priorities_weigh_criteria():
    # 3 of 3 + 1 + 1 = 0.6; tent: 1 - 0.1 / 0.5
    found = propose(
        rubrics=rubric([3, 1, 1]), answers=[answer("a")], judgments=verdicts("a", 1, 0, 0)
    )
    assert found["components"]["g_bar"] == 0.6
    assert found["reward"] == pytest.approx(0.5 + 0.8)


@pytest.mark.parametrize("passed", [False, None], ids=["failed", "unreadable"])
def test_a_task_that_fails_one_gate_earns_half_its_format(passed):
    form = {"total": 2 / 3, "think": 1.0, "tool": 1.0, "structure": 0.0}
    gates = [gate(True), gate(passed, "source"), gate(True, "repeats")]
    found = propose(tasks=[task(form=form)], rubrics=[], gates=gates)
    assert found["reward"] == pytest.approx(1 / 3)
    assert (found["components"]["passed_gates"], found["components"]["has_rubric"]) == (0, 0)


def test_without_gates_every_readable_task_passes():
    judged = verdicts("a", 1, 0, 0)
    found = propose(answers=[answer("a")], judgments=judged, gates=())
    assert found["reward"] == pytest.approx(0.5 + (1 - (0.5 - 1 / 3) / 0.5))


def test_a_passing_task_without_a_rubric_earns_nothing_format_included():
    malformed = row(
        "rubrics", criterion_id="t", task_id="t", malformed="fewer criteria than allowed"
    )
    for rubrics in ([], [malformed]):
        found = propose(rubrics=rubrics)
        assert (found["reward"], found["components"]["format"]) == (0.0, 1.0)


def test_a_passing_task_whose_answers_could_not_be_graded_earns_its_format():
    found = propose(answers=[answer("a", None)])
    assert found["reward"] == 0.5
    assert "g_bar" not in found["components"]


def test_no_task_earns_nothing():
    form = {"total": 2 / 3, "think": 1.0, "tool": 1.0, "structure": 0.0}
    assert propose(tasks=[task(text=None, form=form)], rubrics=[], gates=())["reward"] == 0.0


def test_a_rollout_without_any_format_earns_nothing():
    form = dict.fromkeys(GOOD, 0.0)
    assert (
        propose(tasks=[task(form=form)], answers=[answer("a")], judgments=verdicts("a", 1, 1, 0))[
            "reward"
        ]
        == 0.0
    )


def test_an_engine_failure_is_unscorable_and_not_0():
    found = propose(tasks=[task(text=None, malformed="engine error")], rubrics=[], gates=())
    assert (found["reward"], found["unscorable"]) == (None, "engine error")
    (found,) = solve([answer("a", None, malformed="engine error")])
    assert (found["reward"], found["unscorable"]) == (None, "engine error")


ENGINE = "engine error"
FULL = "no room left in the context"


def unasked(rows: list[dict]) -> list[dict]:
    """Judgments in which those without a verdict are engine failures."""
    return [{**one, "malformed": ENGINE if one["verdict"] is None else None} for one in rows]


def failed_gate(why: str, name: str = "source") -> dict:
    return row("gates", task_id="t", gate=name, kind="model", malformed=why)


@pytest.mark.parametrize("why", [ENGINE, FULL])
def test_a_task_that_the_judge_was_not_asked_about_is_unscorable_and_not_paid_for_its_format_alone(
    why,
):
    rubric_lost = [row("rubrics", criterion_id="t", task_id="t", malformed=why)]
    verdicts_lost = verdicts("a", None, None, None, malformed=why)
    for given in (
        {"gates": [gate(True), failed_gate(why)], "rubrics": []},
        {"rubrics": rubric_lost},
        {"answers": [answer("a")], "judgments": verdicts_lost},
    ):
        found = propose(**given)
        assert (found["reward"], found["score"], found["unscorable"]) == (None, None, why)


def test_a_task_whose_answers_were_never_sampled_is_unscorable():
    found = propose(
        answers=[
            answer("a", None, malformed=ENGINE),
            answer("b", None, malformed="no answer element"),
        ]
    )
    assert (found["reward"], found["unscorable"]) == (None, ENGINE)
    # a task that is too long is the Challenger's own fault
    assert propose(answers=[answer("a", None, malformed="prompt over the limit")])["reward"] == 0.5


def test_what_is_decided_without_the_failed_judge_is_paid():
    assert propose(gates=[gate(False), failed_gate(ENGINE)], rubrics=[])["reward"] == 0.5
    no_format = [task(form=dict.fromkeys(GOOD, 0.0))]
    assert propose(no_format, gates=[failed_gate(ENGINE)], rubrics=[])["reward"] == 0.0
    # one of two answers is graded, 1 of 2: the tent's peak
    judged = [*verdicts("a", 1, 0), *verdicts("b", None, None, malformed=ENGINE)]
    found = propose(rubrics=rubric([1, 1]), answers=[answer("a"), answer("b")], judgments=judged)
    assert (found["reward"], found["components"]["num_rollouts"]) == (1.5, 1)


def test_criteria_that_the_judge_was_not_asked_about_count_neither_way():
    lost = unasked(verdicts("a", 1, 0, None, None))
    # 1 of 2; counted as not met it would be 1 of 4
    assert solve([answer("a")], lost)[0]["components"]["g"] == 0.5
    (found,) = solve(
        [answer("a")], unasked(verdicts("a", 1, None, None, None))
    )  # 1 of 4 is below coverage, which is not the Solver's fault
    assert (found["reward"], found["unscorable"]) == (None, ENGINE)
    unread = [
        {**one, "malformed": "no score element"} for one in verdicts("a", 1, None, None, None)
    ]
    (found,) = solve([answer("a")], unread)
    assert (found["reward"], found["unscorable"], found["components"]["graded"]) == (0.5, None, 0.0)


def test_verdicts_on_canaries_are_no_verdicts_on_answers():
    judged = [*verdicts("a", 0, 0, 1), *verdicts("a", 1, 1, 1, expected=1)]
    assert propose(answers=[answer("a")], judgments=judged)["components"]["g_bar"] == pytest.approx(
        1 / 3
    )


def test_tasks_are_scored_by_their_own_answers_in_their_own_group():
    tasks = [task("t"), task("u", prompt_id="q")]
    answers = [answer("a"), answer("b", task_id="u")]
    judged = [*verdicts("a", 1, 1, 1), *verdicts("b", 0, 0, 0, task_id="u")]
    rows = challenger_rewards(
        tasks,
        rubric([1] * 3) + rubric([1] * 3, "u"),
        answers,
        judged,
        settings=ChallengerReward(),
        min_coverage=0.5,
    )
    assert [(r["rollout_id"], r["group_id"], r["components"]["g_bar"]) for r in rows] == [
        ("t", "p", 1.0),
        ("u", "q", 0.0),
    ]


def test_a_solver_is_paid_by_eq_6():
    # g 3/4, length factor at 1536 tokens 0.525, two of three paid searches
    (found,) = solve([answer("a", answer_tokens=1536, num_searches=2)], verdicts("a", 1, 1, 1, 0))
    assert found["reward"] == pytest.approx(0.525 * 0.75 + 0.5 + 0.1 * 2 / 3)
    parts = {
        "g": 0.75,
        "length_factor": 0.525,
        "format": 1.0,
        "format_think": 1.0,
        "search": 2 / 3,
        "graded": 1.0,
    }
    assert {k: found["components"][k] for k in parts} == pytest.approx(parts)
    assert found["score"] == 0.75


@pytest.mark.parametrize(
    ("tokens", "factor"), [(27, 1.0), (28, 1.0), (46, 0.525), (64, 0.05), (65, 0.05)]
)  # 46 is halfway from 28 to 64
def test_length_limits_are_settings(tokens, factor):
    (found,) = solve(
        [answer("a", answer_tokens=tokens)],
        verdicts("a", 1, 1, 1, 1),
        length_soft=28,
        length_hard=64,
    )
    assert found["reward"] == pytest.approx(factor + 0.5)


def test_without_the_length_penalty_length_does_not_matter():
    (found,) = solve(
        [answer("a", answer_tokens=3000)], verdicts("a", 1, 1, 1, 1), length_penalty=False
    )
    assert found["reward"] == 1.5


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        ({}, ()),
        ({}, verdicts("a", 1, None, None, None)),
        ({"text": None}, verdicts("a", 1, 1, 1, 1)),
    ],
    ids=["never graded", "graded in one criterion of four", "no answer"],
)
def test_an_answer_without_a_grade_is_still_paid_for_format_and_search(given, judged):
    (found,) = solve([answer("a", num_searches=3, **given)], judged)
    assert found["reward"] == pytest.approx(0.5 + 0.1)
    assert (found["components"]["g"], found["components"]["graded"]) == (0.0, 0.0)


def test_pitfalls_are_graded_beside_a_criterion_that_earns_and_not_alone():
    """An answer that meets the first criterion and avoids the pitfall has all there is to earn."""
    weights = rubric([1, -1])
    (both,) = solve([answer("a")], verdicts("a", 1, 0), rubrics=weights)
    assert (both["components"]["g"], both["components"]["graded"]) == (1.0, 1.0)
    lost = unasked(verdicts("a", None, 0))
    (alone,) = solve([answer("a")], lost, rubrics=weights)
    assert (alone["reward"], alone["unscorable"]) == (None, ENGINE)
