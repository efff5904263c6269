"""A verdict names the number that it rests on, and is the worst of its reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.pilot.play import Notes
from flows.pilot.signals import FilterSignal, RewardSignal, RoleSignal, Signals
from flows.pilot.verdict import judge
from tasks.findings.find import Finding
from tasks.monitors.monitor import Alarm

SOLVER = RoleSignal("solver", 400, 0.9, {"no box": (40, "It is 4")}, 20.0, 0.0)
POOL = FilterSignal("tasks", 100, 60, 40, {"too easy": 40, "not needed": 20})
GROUPS = RewardSignal("solver", 40, 30, 0.4)
HEALTHY = Signals(
    roles=(SOLVER,),
    filters=(POOL,),
    rewards=(GROUPS,),
    agreement=0.9,
    metrics=(),
    seconds=10.0,
    num_tokens=8000,
    num_steps=20,
    notes=Notes(),
)


def serious(rule: str, number: float = 0.51) -> Finding:
    """A serious finding of a rule."""
    return Finding(
        rule=rule,
        title="verdicts",
        severity="serious",
        sentence="Verdicts are wrong on 51% of answers.",
        number=number,
        compared_with=None,
        comparison="",
        sql="",
        rows=(),
        page="judge",
    )


def test_readable_replies_and_rewards_that_differ_are_enough() -> None:
    verdict = judge(HEALTHY)
    assert (verdict.outlook, verdict.reasons) == ("will learn", ())
    assert verdict.sentence.startswith("will learn: ")


@pytest.mark.parametrize(
    ("changed", "outlook", "problem"),
    [
        (
            {"caution": "the model asks by itself"},
            "weak signal",
            "the model asks by itself",
        ),
        (
            {"roles": (replace(SOLVER, readable=0.05),)},
            "weak signal",
            "5.0% of 400 replies of the solver",
        ),
        (
            {"roles": (replace(SOLVER, readable=0.2),)},
            "weak signal",
            "(most frequent reason: no box)",
        ),
        ({"filters": (replace(POOL, num_passed=1),)}, "no signal", "1 of 100 candidates pass"),
        (
            {"filters": (replace(POOL, num_passed=8),)},
            "weak signal",
            "(most frequent reason: too easy)",
        ),
        ({"rewards": (replace(GROUPS, num_with_contrast=0),)}, "no signal", "differ in 0 of 40"),
        ({"rewards": (replace(GROUPS, num_with_contrast=1),)}, "no signal", "differ in 1 of 40"),
        ({"rewards": (replace(GROUPS, num_with_contrast=5),)}, "weak signal", "in only 5 of 40"),
        ({"rewards": ()}, "no signal", "no rollout has a reward"),
        ({"agreement": 0.55}, "weak signal", "two votes of a judge on one answer agree in 55%"),
        ({"findings": (serious("rewards_at_chance"),)}, "no signal", "verdicts are wrong on 51%"),
        ({"findings": (serious("judge_errs_in_training"),)}, "weak signal", "are wrong on 51%"),
        ({"findings": (serious("canaries_misjudged", 0.4),)}, "no signal", "are wrong on 51%"),
        ({"findings": (serious("canaries_misjudged", 0.39),)}, "weak signal", "are wrong on 51%"),
        ({"notes": Notes(stopped="nothing read")}, "no signal", "would stop: nothing read"),
        (
            {"notes": Notes(alarms=[Alarm("r/evaluations", "judge_error", 0.5, 0.3, "Mend it.")])},
            "no signal",
            "judge_error is 0.5, the limit is 0.3",
        ),
    ],
)
def test_each_fault_is_named_with_its_number(changed: dict, outlook: str, problem: str) -> None:
    verdict = judge(replace(HEALTHY, **changed))
    assert verdict.outlook == outlook
    [reason] = verdict.reasons
    assert problem in reason.problem and reason.advice
    assert verdict.sentence == f"{outlook}, because {reason.problem}"


def role(readable: float, cut_off: float = 0.0) -> dict:
    return {"roles": (replace(SOLVER, readable=readable, cut_off=cut_off),)}


def filtered(num_passed: int) -> dict:
    return {"filters": (replace(POOL, num_passed=num_passed),)}


def contrast(num_groups: int, num_with_contrast: int) -> dict:
    return {"rewards": (RewardSignal("solver", num_groups, num_with_contrast, 0.4),)}


@pytest.mark.parametrize(
    ("at_the_bound", "outlook", "below_it", "worse"),
    [
        (role(0.3), "will learn", role(0.29), "weak signal"),
        (filtered(10), "will learn", filtered(9), "weak signal"),
        (filtered(2), "weak signal", filtered(1), "no signal"),
        ({"agreement": 0.6}, "will learn", {"agreement": 0.59}, "weak signal"),
        (contrast(40, 8), "will learn", contrast(40, 7), "weak signal"),
        (contrast(8, 8), "will learn", contrast(8, 7), "weak signal"),
        (contrast(200, 10), "will learn", contrast(200, 9), "no signal"),
    ],
)
def test_an_outlook_gets_worse_just_below_its_bound(
    at_the_bound: dict, outlook: str, below_it: dict, worse: str
) -> None:
    assert judge(replace(HEALTHY, **at_the_bound)).outlook == outlook
    assert judge(replace(HEALTHY, **below_it)).outlook == worse


@pytest.mark.parametrize(("readable", "outlook"), [(0.1, "weak signal"), (0.09, "no signal")])
def test_less_than_a_tenth_of_readable_replies_is_no_signal_where_no_two_groups_differ(
    readable: float, outlook: str
) -> None:
    verdict = judge(
        replace(HEALTHY, **role(readable), **contrast(num_groups=1, num_with_contrast=1))
    )
    assert verdict.outlook == outlook


def test_groups_without_contrast_are_no_tasks_that_an_update_can_compare() -> None:
    """8% of replies can be read, and of four groups only one differs."""
    verdict = judge(replace(HEALTHY, **role(0.08), **contrast(num_groups=4, num_with_contrast=1)))
    assert verdict.outlook == "no signal"


@pytest.mark.parametrize(("num_with_contrast", "outlook"), [(2, "weak signal"), (1, "no signal")])
def test_tasks_that_an_update_can_compare_decide_not_the_replies_that_can_be_read(
    num_with_contrast: int, outlook: str
) -> None:
    questioner = RoleSignal("questioner", 80, 0.08, {"no question": (74, "It")}, 20.0, 0.0)
    groups = RewardSignal("solver", num_with_contrast, num_with_contrast, 0.4)
    verdict = judge(replace(HEALTHY, roles=(questioner,), rewards=(groups,)))
    assert verdict.outlook == outlook
    assert "8.0% of 80 replies of the questioner" in verdict.sentence


def test_candidates_that_pass_and_are_not_needed_speak_for_a_filter() -> None:
    assert judge(replace(HEALTHY, filters=(replace(POOL, num_kept=1),))).outlook == "will learn"


def test_few_groups_that_all_differ_are_a_small_step_not_a_weak_signal() -> None:
    assert judge(replace(HEALTHY, rewards=(RewardSignal("judge", 2, 2, 0.3),))).outlook == (
        "will learn"
    )


def test_the_worst_reason_decides_and_comes_first() -> None:
    verdict = judge(
        replace(
            HEALTHY,
            agreement=0.5,
            rewards=(replace(GROUPS, num_with_contrast=0),),
        )
    )
    assert [reason.outlook for reason in verdict.reasons] == ["no signal", "weak signal"]
    assert "votes" not in verdict.sentence


@pytest.mark.parametrize(("cut_off", "names_it"), [(0.51, True), (0.5, False)])
def test_advice_names_the_token_limit_where_most_replies_are_cut_off(
    cut_off: float, names_it: bool
) -> None:
    [reason] = judge(replace(HEALTHY, **role(0.2, cut_off))).reasons
    assert ("token limit" in reason.advice) == names_it


def test_a_pilot_that_stopped_before_any_reward_has_one_reason() -> None:
    verdict = judge(replace(HEALTHY, rewards=(), notes=Notes(stopped="nothing can be read")))
    [reason] = verdict.reasons
    assert reason.problem == "the run would stop: nothing can be read"


def test_advice_on_a_pilot_that_stopped_is_about_the_role_that_is_read_least() -> None:
    read = replace(SOLVER, name="questioner", readable=0.9)
    unread = replace(SOLVER, readable=0.05)
    stopped = Notes(stopped="nothing can be read")
    verdict = judge(replace(HEALTHY, roles=(read, unread), notes=stopped))
    assert verdict.reasons[0].advice.startswith("Add worked examples to the prompt")


def test_advice_that_two_reasons_share_is_given_once() -> None:
    role = replace(SOLVER, readable=0.05)
    verdict = judge(replace(HEALTHY, roles=(role,), notes=Notes(stopped="nothing can be read.")))
    assert len(verdict.reasons) == 2
    assert verdict.advice == ["Add worked examples to the prompt, or use a larger model."]
    assert "would stop: nothing can be read" in verdict.sentence
    assert "read.;" not in verdict.sentence
