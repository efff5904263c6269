"""A pilot over a scripted engine: R-Zero's first step, from which the run continues."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from flows.pilot.play import Notes, num_steps, of_first_step, play_pilot
from flows.pilot.signals import Signals, measure
from flows.runtime.request import Request
from flows.rzero.config import Config
from flows.rzero.flow import rzero_iteration
from flows.scope.config import Config as Scope
from flows.settings import profile
from tests.flows.rzero.test_played import CANDIDATES, SETTINGS, TRAINING, speaker
from tests.support.rows import publish, row
from tests.support.scripted_play import Script, any_text_model, perform
from warehouse.schemas import UPDATES
from warehouse.store import Store


class Piloted:
    """A pilot of R-Zero's scripted run, then that run."""

    def __init__(self, folder: Path, *questions: str | None) -> None:
        self.store = Store(folder / "store")
        model = str(any_text_model(folder / "model"))
        self.request = Request(
            flow="rzero-iteration",
            profile="micro",
            run="r",
            overrides={**SETTINGS, "models.base": model},
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SELFPLAY_STORE", str(self.store.root))
            perform(Script(speaker(*questions)), patch)
            self.notes: Notes = play_pilot(rzero_iteration, self.request)
        self.tables = {t.address: t.content_hash for t in self.store.tables("r")}
        self.began = {t.address: t.recipe["started_at"] for t in self.store.tables("r")}
        cfg = profile.load(Config, "micro", self.request.settings)
        self.signals: Signals = measure(self.store, "r", cfg, self.notes)

    def go_on(self, *questions: str | None) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SELFPLAY_STORE", str(self.store.root))
            perform(Script(speaker(*questions)), patch)
            rzero_iteration.run(self.request)


@pytest.fixture(scope="module")
def piloted(tmp_path_factory: pytest.TempPathFactory) -> Piloted:
    return Piloted(tmp_path_factory.mktemp("pilot"), *TRAINING, *CANDIDATES)


def test_it_goes_through_every_role_and_trains_nothing(piloted: Piloted) -> None:
    assert piloted.notes.stopped is None
    assert {role.name for role in piloted.signals.roles} == {"challenger", "solver"}
    assert {reward.role for reward in piloted.signals.rewards} == {"challenger", "solver"}
    assert not list(piloted.store.tables("r", UPDATES))
    assert len(piloted.notes.updates) == 2  # the Challenger's, and the first of the Solver's


def test_replies_are_counted_by_role_with_a_reason_and_an_example(piloted: Piloted) -> None:
    [challenger] = [role for role in piloted.signals.roles if role.name == "challenger"]
    assert challenger.num_replies == len(TRAINING) + len(CANDIDATES)
    num_unreadable = [*TRAINING, *CANDIDATES].count("malformed")
    num_failed = [*TRAINING, *CANDIDATES].count(None)
    assert challenger.readable == 1 - (num_unreadable + num_failed) / challenger.num_replies
    assert challenger.reasons["no JSON object"] == (num_unreadable, "Nothing comes to mind.")


def test_the_filters_outcomes_are_those_of_its_selections(piloted: Piloted) -> None:
    [pool] = piloted.signals.filters
    assert pool.num_candidates == len(CANDIDATES)
    assert pool.num_kept == pool.num_passed == 3  # HALF, MOST and QUARTERS
    assert sum(pool.reasons.values()) == len(CANDIDATES) - 3


def test_the_run_continues_from_its_tables(piloted: Piloted) -> None:
    """The first phase is not rebuilt; what follows its update is, since the policy has changed."""
    piloted.go_on(*CANDIDATES)
    began = {t.address: t.recipe["started_at"] for t in piloted.store.tables("r")}
    first = [address for address in piloted.tables if "/challenger/" in address]
    assert any("rollouts" in address for address in first)
    assert {address: began[address] for address in first} == {
        address: piloted.began[address] for address in first
    }
    updates = list(piloted.store.tables("r", UPDATES))
    assert updates[0].at.phase == "challenger"


def test_the_first_step_is_one_of_every_phase() -> None:
    cfg = profile.load(Scope, "micro")
    assert of_first_step(cfg) == {
        "challenger.steps": 1,
        "solver.steps": 1,
        "evaluation.benchmark": "none",
        "evaluation.benchmarks": [],
    }
    mean = round((cfg.challenger.steps + cfg.solver.steps) / 2)
    assert num_steps(cfg) == cfg.iterations * mean


def test_votes_at_random_agree_in_half_of_their_pairs(store: Store) -> None:
    """All four pairs of votes that two coins can give, and all eight triples."""
    place = store.run("r").iteration(1)
    answers = [*itertools.product((0, 1), repeat=2), *itertools.product((0, 1), repeat=3)]
    votes = [
        row("votes", judge_rollout_id=f"{number}-{n}", rollout_id=f"a{number}", vote=vote)
        for number, of_answer in enumerate(answers)
        for n, vote in enumerate(of_answer)
    ]
    publish(place, "votes", *votes, row("votes", rollout_id="judged once", vote=1))
    signals = measure(store, "r", profile.load(Config, "micro"), Notes())
    assert signals.agreement == pytest.approx(0.5)
