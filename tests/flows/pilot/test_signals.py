"""What a pilot measures of given tables, one signal at a time."""

from __future__ import annotations

import pytest

from flows.pilot.play import Notes
from flows.pilot.signals import Signals, measure
from flows.rzero.config import Config
from flows.settings import profile
from tests.support.rows import publish, row
from warehouse.schemas import TABLES
from warehouse.store import Place, Store


def signals_of(store: Store) -> Signals:
    cfg = profile.load(Config, "micro", {"monitor.max_label_error": 0.3})
    return measure(store, "r", cfg, Notes())


def give_rollouts(place: Place, *rollouts: dict, label: str = "solver") -> None:
    """Rollouts of the solver: 10 tokens and whole, unless they say otherwise."""
    columns = {"role": "solver", "finish_reason": "final", "num_sampled_tokens": 10}
    rows = [row("rollouts", **columns | given) for given in rollouts]
    publish(place, "rollouts", *rows, label=label)


def give_advantages(place: Place, outcomes: dict[str, tuple[float, float]]) -> None:
    """Rollouts of the solver by name, whose first letter is their group: reward and advantage."""
    give_rollouts(place, *({"rollout_id": name} for name in outcomes))
    rows = [
        row("advantages", rollout_id=name, group_id=name[0], reward=reward, advantage=advantage)
        for name, (reward, advantage) in outcomes.items()
    ]
    publish(place, "advantages", *rows)


def test_a_group_has_contrast_if_some_rollout_has_an_advantage(place: Place, store: Store) -> None:
    """Two groups of two: rewards 0 and 1, whose standard deviation is 0.5, and twice 1."""
    outcomes = {"a1": (1.0, 1.0), "a2": (0.0, -1.0), "b1": (1.0, 0.0), "b2": (1.0, 0.0)}
    give_advantages(place, outcomes)
    give_advantages(store.run("r").iteration(2), {"c1": (1.0, 1.0), "c2": (0.0, -1.0)})
    [signal] = signals_of(store).rewards
    assert (signal.role, signal.num_groups, signal.num_with_contrast) == ("solver", 2, 1)
    assert signal.spread == pytest.approx((0.5 + 0.0) / 2)


def test_replies_of_evaluations_and_monitors_are_not_those_of_training(
    place: Place, store: Store
) -> None:
    give_rollouts(place, {"rollout_id": "trained"})
    iteration = store.run("r").iteration(1)
    for phase in ("evaluation", "benchmark", "monitor", "probe-1"):
        give_rollouts(iteration.phase(phase), {"rollout_id": phase})
    give_rollouts(store.run("r").iteration(2), {"rollout_id": "of the second iteration"})
    [solver] = signals_of(store).roles
    assert solver.num_replies == 1


def test_a_reply_that_an_engine_did_not_give_cannot_be_read(place: Place, store: Store) -> None:
    failed = {"finish_reason": "error", "error": "timeout", "num_sampled_tokens": 0}
    cut_off = {"finish_reason": "length", "num_sampled_tokens": 30}
    give_rollouts(
        place,
        {"rollout_id": "whole"},
        {"rollout_id": "cut off", **cut_off},
        {"rollout_id": "failed", **failed},
        {"rollout_id": "failed, too", **failed},
    )
    [solver] = signals_of(store).roles
    assert solver.readable == 2 / 4
    assert solver.cut_off == 1 / 4
    assert solver.num_tokens == (10 + 30) / 4
    assert solver.reasons["timeout"][0] == 2


def test_a_metric_is_the_mean_over_all_that_its_steps_measured(store: Store) -> None:
    """One error in ten labels, then five in ten times as many: 6 of 110."""
    phase = store.run("r").iteration(1).phase("solver")
    for number, (score, n) in enumerate([(0.1, 10), (0.05, 100)], start=1):
        measured = row(
            "evaluations",
            policy="p",
            benchmark="label monitor",
            metric="label_error",
            score=score,
            n=n,
        )
        publish(phase.step(number), "evaluations", measured)
    [metric] = signals_of(store).metrics
    assert (metric.metric, metric.limit) == ("label_error", "max 0.3")
    assert metric.value == pytest.approx(6 / 110)


def score(place: Place, metric: str, share: float, n: int) -> None:
    measured = {"benchmark": "monitor", "metric": metric, "score": share, "n": n}
    publish(place, "evaluations", row("evaluations", policy="p", **measured), label=metric)


def test_a_metric_without_a_limit_is_not_shown(place: Place, store: Store) -> None:
    """`judge_error` may have a limit, which is not set; `label_share` has none."""
    score(place, "judge_error", 0.9, n=10)
    score(place, "label_share", 0.9, n=10)
    assert signals_of(store).metrics == ()


def test_only_serious_findings_are_signals(place: Place, store: Store) -> None:
    score(place, "label_error", 0.25, n=1000)  # wrong references: a warning
    assert signals_of(store).findings == ()
    score(place, "reward_error", 0.6, n=1000)
    assert [finding.rule for finding in signals_of(store).findings] == ["rewards_at_chance"]


def test_what_passed_a_filter_and_was_not_needed_is_told_from_what_failed(
    place: Place, store: Store
) -> None:
    """The bounds of a selection name the limit by which a candidate was not needed."""
    bounds = '{"not needed": 2, "seed": 0}'
    outcomes = [(True, None), (False, "not needed"), (False, "not needed"), (False, "too easy")]
    publish(
        place,
        "selections",
        *(
            row("selections", task_id=f"t{number}", kept=kept, reason=reason, bounds=bounds)
            for number, (kept, reason) in enumerate(outcomes)
        ),
    )
    [signal] = signals_of(store).filters
    assert (signal.num_candidates, signal.num_passed, signal.num_kept) == (4, 3, 1)
    assert signal.reasons == {"not needed": 2, "too easy": 1}


def test_only_the_time_of_the_first_iteration_counts(store: Store) -> None:
    for iteration, seconds in ((1, 3.0), (2, 50.0)):
        recipe = {"key": "k", "stage": "tasks.match", "started_at": 0.0, "counts": {}}
        place = store.run("r").iteration(iteration)
        with store.draft(TABLES["matches"]) as draft:
            draft.write([row("matches")])
            store.publish(draft, place.address("matches"), {**recipe, "seconds": seconds})
    assert signals_of(store).seconds == 3.0
