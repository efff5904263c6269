"""The page of a group: what was judged by answer, and the equation of each reward."""

from __future__ import annotations

from typing import Any

import pytest

from flows.app.viewer.difference import difference
from flows.app.viewer.equations import show
from flows.app.viewer.pages.rollouts import fold, matrix
from flows.eapo.config import Rewards
from flows.eapo.rewards import policy_rewards, weighted_reward
from flows.mae.rewards import judge_rewards, proposer_rewards
from flows.mae.rewards import solver_rewards as mae_solver_rewards
from flows.rzero.rewards import challenger_reward, challenger_rewards
from flows.scope import rewards as scope
from flows.scope.config import ChallengerReward, SolverReward
from flows.spell import rewards as spell
from flows.spell.config import QuestionerSettings
from flows.spice import rewards as spice
from tasks.stage import describe
from tests.app.test_viewer import client_of, open_page
from tests.support.rows import publish, row
from tests.support.store_to_view import lay

SOLVER = SolverReward()
CHALLENGER = ChallengerReward()
QUESTIONER = QuestionerSettings()
WEIGHTS = Rewards()
# what made the rewards, its settings, the components of a reward, and the reward by the paper
EQUATIONS: list[tuple[Any, dict[str, Any], dict[str, float], float]] = [
    (
        scope.solver_rewards,
        {"settings": SOLVER},
        {"g": 0.75, "length_factor": 0.5, "format": 1.0, "search": 1 / 3},
        scope.solver_reward(0.75, 0.5, 1.0, 1 / 3, SOLVER),
    ),
    (
        scope.challenger_rewards,
        {"settings": CHALLENGER},
        {"format": 0.5, "passed_gates": 1.0, "has_rubric": 1.0, "difficulty": 0.5, "g_bar": 0.25},
        scope.challenger_reward(0.5, True, 0.25, CHALLENGER),
    ),
    (
        scope.challenger_rewards,
        {"settings": CHALLENGER},
        {"format": 1.0, "passed_gates": 0.0, "has_rubric": 0.0},
        scope.challenger_reward(1.0, False, None, CHALLENGER),
    ),
    (spell.responder_rewards, {}, {"rule": 0.0, "verdict": 1.0}, spell.responder_reward(0, 1)),
    (spell.responder_rewards, {}, {"rule": 1.0}, spell.responder_reward(1, None)),
    (spell.verifier_rewards, {}, {"majority": 1.0}, spell.verifier_reward(None, 1)),
    (
        spell.questioner_rewards,
        {"settings": QUESTIONER},
        {"well_formed": 1.0, "grounded": 1.0, "r_bar": 0.375},
        spell.questioner_reward(0.375, QUESTIONER),
    ),
    (
        spell.questioner_rewards,
        {"settings": QUESTIONER},
        {"well_formed": 1.0, "grounded": 0.0},
        spell.UNGROUNDED,
    ),
    (
        spice.challenger_rewards,
        {"reward": "variance", "invalid_reward": -0.1},
        {"valid": 1.0, "g_bar": 0.25},
        spice.variance_reward(0.25),
    ),
    (
        spice.challenger_rewards,
        {"reward": "variance", "invalid_reward": -0.1},
        {"valid": 0.0},
        -0.1,
    ),
    (spice.reasoner_rewards, {}, {"readable": 1.0, "g": 1.0}, 1.0),
    (
        challenger_rewards,
        {"weight": 1.0},
        {"share": 0.75, "uncertainty": 0.5, "alike": 0.125},
        challenger_reward(0.75, 0.125),
    ),
    (
        policy_rewards,
        {"weights": WEIGHTS},
        {"format": 1.0, "evidence": 0.5, "answer": 1.0},
        weighted_reward(0.5, 1.0, WEIGHTS),
    ),
    (policy_rewards, {"weights": WEIGHTS}, {"format": 0.0}, 0.0),
    (mae_solver_rewards, {"pays_format": True}, {"format": 1.0, "mark": 0.5}, 0.75),
    (mae_solver_rewards, {"pays_format": False}, {"format": 1.0, "mark": 0.5}, 0.5),
    (
        proposer_rewards,
        {"pays_format": True},
        {"quality": 0.75, "difficulty": 0.25, "format": 0.5},
        0.5,
    ),
    (judge_rewards, {"pays_format": True}, {"format": 0.5}, 0.5),
]


def test_replies_that_repeat_themselves_differ_as_a_whole():
    """Word by word, their differences are hundreds, and would take minutes to find for a group."""
    before = "So: " + "one two three four five " * 80 + "end"
    after = "So: " + "four six two five one three seven " * 80 + "end"
    compared = difference(before, after)
    assert (compared.count("<del>"), compared.count("<ins>")) == (1, 1)
    assert compared.startswith("So: <del>one two") and compared.endswith("three seven</ins> end")


def test_the_same_beginning_and_end_are_never_compared():
    """However long they are; only what lies between is marked."""
    same = "word " * 5000
    assert difference(f"{same}red {same}", f"{same}blue {same}") == (
        difference(same, same) + difference("red", "blue") + difference(f" {same}", f" {same}")
    )


@pytest.mark.parametrize(("function", "settings", "components", "reward"), EQUATIONS)
def test_the_equation_that_a_method_declares_gives_the_reward_of_its_code(
    function, settings, components, reward
):
    params = {"reward": describe(function), "arguments": describe(settings)}
    shown = show(params, components, reward, [])
    assert shown is not None and shown.value == reward


def test_numbers_stand_in_the_place_of_the_names():
    function, settings, components, reward = EQUATIONS[0]
    params = {"reward": describe(function), "arguments": describe(settings)}
    shown = show(params, components, reward, [])
    assert shown is not None
    assert shown.general.startswith("rubric weight · length factor · g + format weight · format")
    assert shown.numbers.startswith(f"{SOLVER.rubric_weight:g} · 0.5 · 0.75 + ")
    assert shown.source == "eq. 6" and {"g", "length_factor"} <= shown.where.keys()


def test_an_equation_that_does_not_give_the_stored_reward_is_not_shown():
    function, settings, components, reward = EQUATIONS[0]
    params = {"reward": describe(function), "arguments": describe(settings)}
    assert show(params, components, reward + 0.01, []) is None


def answer(rollout_id: str, sample: int, reply: str, reward: float) -> dict[str, Any]:
    given = {"rollout_id": rollout_id, "sample": sample, "reply": reply, "reward": reward}
    return {**given, "advantage": reward - 0.5, "error": None}


def verdict(rollout_id: str, value: int, oracle: int) -> dict[str, Any]:
    given = {"what": "criterion", "criterion_id": "c", "rollout_id": rollout_id}
    return {**given, "value": float(value), "oracle": float(oracle)}


def test_verdicts_on_the_same_words_stand_in_one_cell_which_counts_those_that_err():
    """Two rollouts say "yes", and the judge passes one of them: it errs once on equal words."""
    answers = fold([answer("a", 0, "yes", 1.0), answer("b", 1, " yes ", 1.0)])
    answers += fold([answer("d", 2, "no", 0.0)])
    rubric = [{"criterion_id": "c", "position": 0, "criterion": "says yes"}]
    [line] = matrix(answers, rubric, [verdict("a", 1, 1), verdict("b", 0, 1), verdict("d", 0, 0)])
    same, other = line["cells"]
    assert (same["num"], same["num_accepted"], same["errs"]) == (2, 1, 1)
    assert (other["num"], other["num_accepted"], other["errs"]) == (1, 0, 0)
    assert (line["name"], line["text"], line["errs"]) == ("1", "says yes", 1)


def test_the_same_words_under_another_reward_are_another_answer():
    assert len(fold([answer("a", 0, "yes", 1.0), answer("b", 1, "yes", 0.0)])) == 2


def test_votes_marks_and_a_rule_have_a_line_each_where_there_are_no_criteria(store):
    place = lay(store).iteration(1).phase("training").step(1)
    about = {"rollout_id": "a1", "task_id": "t1", "judge_rollout_id": "j1"}
    publish(place, "votes", row("votes", vote=1, **about))
    publish(place, "marks", row("marks", mark=0.25, **about), label="quality")
    publish(place, "matches", row("matches", rollout_id="a1", task_id="t1", matched=False))
    page = open_page(client_of(store), "/run/mine/group?id=p-answer")
    said = " ".join(page.text.split())
    assert "1 differ from the truth" in said  # the judgment of the store
    for name in ("vote", "mark quality", "rule"):
        assert f" {name} " in said, name
    assert "0.25" in said
