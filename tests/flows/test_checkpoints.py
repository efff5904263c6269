"""`keep_checkpoints = "last"`: what an update frees, what stays, and what a run finds when it
resumes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flows.rzero.config as rzero
import flows.scope.config as scope
import flows.spell.config as spell
import flows.spice.config as spice
from flows.run import Run
from flows.runtime.machines import Machines
from flows.settings import profile
from tasks.generate import generate
from tasks.models.engine import Policy, Sampling
from tasks.rollouts.rollout import Dialogue
from tasks.training.grpo import GRPOSettings
from tasks.update import update, updated_policy
from tests.support.rows import publish, row, updates
from tests.support.trainers import STATE, WEIGHTS, CountingTrainer
from warehouse import clean
from warehouse.rerun import Inquiry, Rerun, chosen
from warehouse.store import Store, Table
from warehouse.table import Cleaned


class Killed(BaseException):
    """Stands in for SIGKILL."""


@contextlib.contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, moment: str) -> Iterator[None]:
    """End the process at this moment of the first removal."""
    unlink = Path.unlink

    def die(path: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(path, Store) or path.name in (STATE, WEIGHTS):
            raise Killed
        unlink(path, *args, **kwargs)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(
            *(Store, "amend") if moment == "before it is marked" else (Path, "unlink"), die
        )
        yield


def learn(
    store: Store, run: str = "r", start: tuple[Any, str | None] | None = None, shift: int = 0
) -> None:
    """Two iterations with two updates of each of two roles, made like a flow's."""
    base = store.root / "base"
    base.mkdir(exist_ok=True)
    (base / WEIGHTS).write_text("0")
    policy = Policy(id="base", weights=str(base), content_hash="0")
    tools: Any = (None, None, CountingTrainer())
    machines = Machines(*tools, keep_checkpoints="last")
    place = store.run(run)
    players = dict.fromkeys(("challenger", "solver"), start or (policy, None))
    for t in (1, 2):
        for role in players:
            for s in (1, 2):
                step = place.iteration(t).phase(role).step(s + shift)
                rows = publish(step, "batches", row("batches"))
                now, state = players[role]
                settings: Any = {
                    "settings": GRPOSettings(),
                    "role": role,
                    "trainer": machines.trainer,
                }
                made = update(
                    step, rows, policy=now, reference=policy, optimizer_state=state, **settings
                )
                machines.free_superseded(store, made)
                players[role] = updated_policy(made)


def left(store: Store, run: str = "r") -> set[str]:
    """The checkpoint files on disk, as `1/solver/2 model.safetensors`."""
    found = [f for f in store.folder(run).rglob("*") if f.name in (STATE, WEIGHTS)]
    places = [f.relative_to(store.folder(run)).parts for f in found]
    return {f"{int(p[0][5:])}/{p[1]}/{int(p[2][5:])} {p[-1]}" for p in places}


def by_role(*files: str) -> set[str]:
    return {f.replace("ROLE", role) for f in files for role in ("challenger", "solver")}


KEPT = by_role(f"1/ROLE/2 {WEIGHTS}", f"2/ROLE/2 {WEIGHTS}", f"2/ROLE/2 {STATE}")


def times(store: Store) -> dict[str, float]:
    return {
        t.address: t.recipe["started_at"] for t in store.tables("r") if t.schema.name == "updates"
    }


def test_left_are_each_roles_newest_state_and_each_iterations_last_weights(store):
    learn(store)
    assert left(store) == KEPT
    assert not [problem for table in store.tables("r") for problem in table.problems(thorough=True)]
    assert clean.removable(store, "r", keep_last=0) == []


def test_the_same_run_again_makes_nothing(store):
    learn(store)
    made = times(store)
    learn(store)
    assert (times(store), len(made), left(store)) == (made, 8, KEPT)


def test_it_does_not_look_at_the_rest_of_the_run(store, monkeypatch):
    monkeypatch.setattr(Store, "tables", lambda *_: pytest.fail("walked the run"))
    learn(store)
    assert left(store) == KEPT


@pytest.mark.parametrize("moment", ["before it is marked", "before it is removed"])
def test_what_a_kill_leaves_is_freed_by_the_next_pass(store, monkeypatch, moment):
    with killed(monkeypatch, moment):
        learn(store)
    assert f"1/challenger/1 {STATE}" in left(store)
    learn(store)
    assert left(store) == KEPT


def test_clean_removes_what_was_marked_and_not_removed(store, monkeypatch):
    place = store.run("r").iteration(1).phase("solver")
    for number in (1, 2):
        updates(place.step(number))
    with killed(monkeypatch, "before it is removed"):
        clean.remove(store, clean.removable(store, "r", keep_last=0))
    assert left(store) == {
        f"1/solver/{number} {name}" for number in (1, 2) for name in (STATE, WEIGHTS)
    }
    clean.remove(store, clean.removable(store, "r", keep_last=0))
    assert left(store) == {f"1/solver/2 {STATE}", f"1/solver/2 {WEIGHTS}"}


def test_what_another_run_made_stays(store):
    learn(store)
    learn(store, "branch", updated_policy(store.get("r/iter-002/solver/step-002/updates")))
    assert left(store) == KEPT and left(store, "branch") == KEPT


def test_an_inquiry_and_a_rerun_of_one_stage_alone_free_nothing(store):
    place = store.run("r").iteration(1).phase("solver")
    first = updates(place.step(1))
    second = updates(place.step(2), first)
    for careful in (Inquiry(), Rerun("1", frozenset(), only=True)):
        store.freshness = careful
        assert clean.free_superseded(store, second) == 0
    store.freshness = Rerun("1", frozenset())
    assert clean.free_superseded(store, second) == 2000


def rerun(store: Store, stage: str, **where: Any) -> None:
    store.freshness = Rerun(stage, chosen(store, "r", stage, **where))
    learn(store)


def test_a_rerun_that_starts_from_a_freed_state_says_what_to_rerun(store):
    learn(store)
    made = times(store)
    with pytest.raises(
        Cleaned,
        match=r"policy of r/iter-001/solver/step-001/updates .* rerun r 'solver/updates'` rebuilds",
    ):
        rerun(store, "solver/updates", iteration=1, step=2)
    with pytest.raises(Cleaned, match=r"optimizer of r/iter-001/solver/step-002/updates was freed"):
        rerun(store, "solver/updates", iteration=2, step=1)
    assert times(store) == made
    rerun(store, "solver/updates")
    changed = {address for address, at in times(store).items() if at != made[address]}
    assert changed == {address for address in made if "/solver/" in address} and left(store) == KEPT


def test_rollouts_of_a_freed_policy_are_not_sampled(store):
    learn(store)
    policy, _ = updated_policy(store.get("r/iter-001/solver/step-001/updates"))
    place = store.run("r").iteration(1).phase("solver").step(2)
    fleet: Any = SimpleNamespace(roll_out=lambda *_, **__: pytest.fail("sampled"))
    asked = publish(place, "prompts", row("prompts", prompt_id="p"))
    with pytest.raises(Cleaned, match=r"`selfplay rerun r 'solver/\*'` rebuilds it"):
        generate(
            place,
            asked,
            policy=policy,
            sampling=Sampling(max_tokens=1),
            dialogue=Dialogue(),
            fleet=fleet,
        )


def test_after_step_999_comes_step_1000(store):
    learn(store, shift=998)
    base = Policy(id="base", weights="base", content_hash="0")
    run: Run[Any] = Run(profile.load(scope.Config, "micro"), store.run("r"), {"base": base})
    assert run.player_after("solver", 1).policy.id == "r/iter-001/solver/step-1000/updates"
    with pytest.raises(ValueError, match="there is no run 'x' to take the solver from"):
        run.player_after("solver", 1, run="x")
    addresses = [table.address for table in store.tables("r")]
    assert addresses.index("r/iter-001/solver/step-999/updates") < addresses.index(
        "r/iter-001/solver/step-1000/updates"
    )


def test_clean_keeps_step_1000_and_not_step_999(store):
    place = store.run("r").iteration(1).phase("solver")
    made: list[Table] = [updates(place.step(number)) for number in (999, 1000)]
    assert {r.table.address for r in clean.removable(store, "r", keep_last=0)} == {made[0].address}


@pytest.mark.parametrize("method", [scope, spice, spell, rzero])
def test_profiles_that_write_whole_weights_of_real_models_keep_only_the_last(method):
    for name in profile.names(profile.home(method.Config) / "profiles"):
        cfg = profile.load(method.Config, name)
        settings = cfg.solver.update if method in (scope, rzero) else cfg.update
        whole = cfg.engine.device == "cuda" and settings.lora is None
        assert cfg.keep_checkpoints == "last" or not whole, name
