import math

import pytest

from flows.scope import rewards
from flows.scope.config import ChallengerReward, SolverReward
from tasks.scorers.rubric import share_met


@pytest.mark.parametrize(
    ("g_bar", "tau", "expected"),
    [
        (0.0, 0.5, 0.0),
        (0.125, 0.5, 0.25),
        (0.5, 0.5, 1.0),
        (0.75, 0.5, 0.5),
        (1.0, 0.5, 0.0),
        # tau 0.25: both sides fall by 1 over min(tau, 1 - tau) = 0.25, so the far end is clipped at
        # 0
        (0.0, 0.25, 0.0),
        (0.25, 0.25, 1.0),
        (0.375, 0.25, 0.5),
        (0.5, 0.25, 0.0),
        (1.0, 0.25, 0.0),
        (0.5, 0.75, 0.0),
        (0.875, 0.75, 0.5),
        (1.0, 0.75, 0.0),
    ],
)
def test_difficulty_is_a_tent_over_the_mean_score(g_bar, tau, expected):
    assert rewards.difficulty(g_bar, tau) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, 1.0),
        (1023, 1.0),
        (1024, 1.0),
        (1280, 0.05 + 0.475 * (1 + math.sqrt(0.5))),  # a quarter of the way: cos(pi / 4)
        (1536, 0.525),  # half the way: cos(pi / 2) = 0
        (1792, 0.05 + 0.475 * (1 - math.sqrt(0.5))),
        (2048, 0.05),
        (2049, 0.05),
        (10**6, 0.05),
    ],
)
def test_length_factor_falls_as_a_cosine_from_soft_to_hard(tokens, expected):
    assert rewards.length_factor(tokens, SolverReward()) == pytest.approx(expected, abs=1e-12)


def test_length_factor_has_no_step_at_its_ends():
    assert rewards.length_factor(1025, SolverReward()) == pytest.approx(1.0, abs=1e-5)
    assert rewards.length_factor(2047, SolverReward()) == pytest.approx(0.05, abs=1e-5)
    short = SolverReward(length_soft=4, length_hard=6, length_floor=0.0)
    assert rewards.length_factor(5, short) == pytest.approx(0.5)


def test_a_missing_verdict_counts_as_not_met():
    assert share_met([1, None, 0, 1], [1, 1, 1, 1]) == 0.5
    assert share_met([None, None], [1, 1]) == 0.0


def test_weights_weigh_the_criteria():
    assert share_met([1, 0, 1], [3, 2, 1]) == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("verdicts", "share"), [([1, 1, 0], 1.0), ([1, 1, 1], 0.75), ([0, 0, 1], 0.0)]
)
def test_a_pitfall_costs_its_weight_and_avoiding_it_earns_nothing(verdicts, share):
    """Weights 5, 3 and -2, as in rubrics of RaR: the best answer has 1, no answer less than 0."""
    assert share_met(verdicts, [5, 3, -2]) == share


def test_a_rubric_of_pitfalls_alone_is_refused():
    with pytest.raises(ValueError, match=r"needs a criterion of positive weight, not \[-2, 0\]"):
        share_met([1, 1], [-2, 0])


@pytest.mark.parametrize(
    ("format_total", "passed", "g_bar", "expected"),
    [
        (1.0, True, 0.5, 1.5),
        (1.0, True, 0.25, 1.0),
        (1.0, True, 0.0, 0.5),
        (1.0, True, 1.0, 0.5),
        (0.5, True, 0.5, 1.25),
        (1.0, True, None, 0.5),  # no rollout could be graded
        (1.0, False, 0.5, 0.5),  # the gates failed: half of the format
        (0.6, False, None, 0.3),
        (0.0, True, 0.5, 0.0),  # no format at all: nothing
    ],
)
def test_challenger_is_paid_for_format_and_for_tasks_at_the_frontier(
    format_total, passed, g_bar, expected
):
    assert rewards.challenger_reward(
        format_total, passed, g_bar, ChallengerReward()
    ) == pytest.approx(expected)


def test_challenger_weights_are_settings():
    paid = rewards.challenger_reward(
        1.0, True, 0.25, ChallengerReward(format_weight=0.2, difficulty_weight=2.0, tau=0.25)
    )
    assert paid == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("g", "length", "form", "search", "expected"),
    [
        (1.0, 1.0, 1.0, 1.0, 1.6),
        (0.5, 0.05, 1.0, 0.0, 0.525),
        (0.0, 1.0, 1.0, 1 / 3, 0.5 + 0.1 / 3),
        (1.0, 0.525, 0.0, 0.0, 0.525),
    ],
)
def test_solver_is_paid_for_rubric_times_length_and_format_and_search(
    g, length, form, search, expected
):
    assert rewards.solver_reward(g, length, form, search, SolverReward()) == pytest.approx(expected)


def test_searches_are_paid_up_to_three():
    assert [rewards.search_reward(n) for n in range(5)] == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])


THINKS = "<think>a</think> b"
SILENT = "b"


@pytest.mark.parametrize(
    ("texts", "searched", "required", "has_task", "parts"),
    [
        ([THINKS] * 3, [True, True, False], 2, True, (1, 1, 1)),
        ([THINKS, SILENT, SILENT], [True, False, False], 2, True, (1 / 3, 0.5, 1)),
        # more searches than requested: 1 at most
        ([THINKS] * 4, [True] * 3 + [False], 1, False, (1, 1, 0)),
        ([SILENT], [False], 3, False, (0, 0, 0)),
        ([], [], 1, False, (0, 0, 0)),
    ],
)
def test_challenger_format_is_the_mean_of_think_tool_and_structure(
    texts, searched, required, has_task, parts
):
    form = rewards.challenger_format(texts, searched, required, has_task)
    assert (form["think"], form["tool"], form["structure"]) == pytest.approx(parts)
    assert form["total"] == pytest.approx(sum(parts) / 3)


@pytest.mark.parametrize(
    ("texts", "searched", "has_answer", "parts"),
    [
        ([THINKS] * 3, [True, True, False], True, (1, 1, 1)),
        # a search in the last turn is not counted here
        ([THINKS] * 3, [True, False, True], True, (1, 0.5, 1)),
        ([THINKS], [False], True, (1, 0, 1)),  # one turn in all: the tool part is 0
        ([THINKS], [True], False, (1, 0, 0)),
        ([SILENT, SILENT], [False, False], False, (0, 0, 0)),
        ([], [], False, (0, 0, 0)),
    ],
)
def test_solver_format_is_the_mean_of_think_tool_and_answer(texts, searched, has_answer, parts):
    form = rewards.solver_format(texts, searched, has_answer)
    assert (form["think"], form["tool"], form["answer"]) == pytest.approx(parts)
    assert form["total"] == pytest.approx(sum(parts) / 3)


@pytest.mark.parametrize(
    "text", ["<think> open", "closed </think>", "</think> <think>", "‹think›a‹/think›"]
)
def test_a_think_block_must_open_and_close(text):
    assert rewards.solver_format([text], [False], False)["think"] == 0


def test_the_format_of_a_prompt_that_asks_for_no_thoughts_has_no_part_for_them():
    """One of two searches and the task: 1/2 and 1."""
    task = rewards.challenger_format([SILENT, SILENT], [True, False], 2, True, thinks=False)
    assert task == {"tool": 0.5, "structure": 1.0, "total": 0.75}
    answer = rewards.solver_format([SILENT, SILENT], [True, False], False, thinks=False)
    assert answer == {"tool": 1.0, "answer": 0.0, "total": 0.5}
