"""A forked run shares what its source made and recomputes none of it; changes to one do not
affect the other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.runtime.record import REQUEST
from flows.runtime.store_root import SOURCE
from tasks.stage import Rows, stage
from tasks.update import updated_policy
from tests.support.rows import publish, row
from warehouse import clean
from warehouse.draft import Draft, hash_folder
from warehouse.fork import FORK, check_own, fork
from warehouse.query import query
from warehouse.rerun import Rerun, chosen
from warehouse.schemas import ROLLOUTS, SAMPLES, UPDATES
from warehouse.store import Store, Table
from warehouse.table import Damaged

KILLED = """
import os, signal, sys
from warehouse.fork import fork
from warehouse.store import Store
link, done = os.link, []

def link_or_die(old, new):
    link(old, new)
    done.extend([new] * str(new).endswith(".parquet"))
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

os.link = link_or_die
fork(Store(sys.argv[1]), "r", "f", 1, {})
"""
made: list[str] = []


@stage(SAMPLES)
def draw(*, seed: int, address: str) -> Rows:
    made.append(address)
    yield row("samples", sample_id=str(seed))


@stage(ROLLOUTS)
def sample(
    samples: Table,
    *,
    policy: str,
    earlier: tuple[Table, ...] = (),
    temperature: float,
    address: str,
) -> Rows:
    made.append(address)
    yield row("rollouts", rollout_id=f"{address} {temperature}", policy=policy)


@stage(UPDATES)
def train(
    rollouts: Table, *, optimizer_state: str | None, rate: float, address: str, draft: Draft
) -> Rows:
    made.append(address)
    for name in ("policy/model.safetensors", "optimizer/optimizer.bin"):
        (draft.files / "update" / name).parent.mkdir(parents=True)
        (draft.files / "update" / name).write_text(
            f"{name} of {address} at {rate}, after {optimizer_state}"
        )
    files = f"{address}/files/update"
    policy = {"policy": address, "weights": f"{files}/policy", "adapter": None, "role": "solver"}
    yield row("updates", **policy, optimizer_state=f"{files}/optimizer", policy_hash=str(rate))


def play(
    store: Store, run: str, iterations: int = 2, temperature: float = 1.0, rate: float = 0.1
) -> list[str]:
    """Play a run: a table outside iterations, then two steps per iteration. Returns the
    addresses in order."""
    made.clear()
    place = store.run(run)
    policy = "base"
    state = None
    before = ()
    samples = draw(place, seed=0)
    for t in range(1, iterations + 1):
        for b in (1, 2):
            step = place.iteration(t).phase("solver").step(b)
            rollouts = sample(step, samples, policy=policy, earlier=before, temperature=temperature)
            updates = train(step, rollouts, optimizer_state=state, rate=rate)
            (trained, state), before = updated_policy(updates), (rollouts,)
            policy = f"{trained.id} {trained.content_hash} {hash_folder(Path(trained.weights))}"
    return list(made)


def names(run: str, iteration: int) -> list[str]:
    steps = [f"{run}/iter-{iteration:03d}/solver/step-{b:03d}" for b in (1, 2)]
    return [f"{step}/{table}" for step in steps for table in ("rollouts", "updates")]


@pytest.fixture
def forked(store: Store) -> Store:
    """`r` has two iterations, and `f` shares the first."""
    play(store, "r")
    fork(store, "r", "f", 1, {REQUEST: {"run": "f"}})
    return store


def test_a_fork_recomputes_nothing_of_the_iterations_that_it_shares(forked: Store) -> None:
    assert play(forked, "f", iterations=1) == []
    assert play(forked, "f") == names("f", 2)
    assert play(forked, "f") == [] == play(forked, "r")


def test_other_settings_hold_from_the_next_iteration_on(forked: Store) -> None:
    assert play(forked, "f", temperature=0.5, rate=0.2) == names("f", 2)
    kept = {r["rollout_id"] for r in forked.get(names("f", 1)[0]).rows()}
    new = {r["rollout_id"] for r in forked.get(names("f", 2)[0]).rows()}
    assert kept == {"r/iter-001/solver/step-001/rollouts 1.0"}
    assert new == {"f/iter-002/solver/step-001/rollouts 0.5"}


@pytest.mark.parametrize("run", ["r", "größe"])
def test_what_lies_outside_iterations_is_shared_but_follows_the_settings(
    store: Store, run: str
) -> None:
    play(store, run)
    late = sample(
        store.run(run),
        store.get(f"{run}/samples"),
        policy=f"{run}/iter-002/solver/step-002/updates",
        temperature=1.0,
    )
    fork(store, run, "f", 1, {})
    assert store.find("f/samples") and not store.find(late.address.replace(f"{run}/", "f/"))
    made.clear()
    draw(store.run("f"), seed=0)
    assert made == []
    draw(store.run("f"), seed=1)
    assert made == ["f/samples"]


def test_files_are_shared_and_recipes_name_the_new_run(forked: Store) -> None:
    first, other = (forked.get(f"{run}/iter-001/solver/step-002/updates") for run in ("r", "f"))
    for name in first.contents:
        assert (first.folder / name).samefile(other.folder / name)
    assert other.recipe["inputs"]["rollouts"]["address"] == "f/iter-001/solver/step-002/rollouts"
    assert (
        other.recipe["params"]["optimizer_state"]
        == "f/iter-001/solver/step-001/updates/files/update/optimizer"
    )
    assert forked.kept("f", REQUEST) == {"run": "f"}
    assert (forked.kept("f", FORK)["run"], forked.kept("f", FORK)["iteration"]) == ("r", 1)
    assert not any(table.at.iteration == 2 for table in forked.tables("f"))
    assert [
        problem for table in forked.tables("f") for problem in table.problems(thorough=True)
    ] == []


def test_a_policy_keeps_its_name_and_is_read_where_its_table_stands(forked: Store) -> None:
    policy, state = updated_policy(forked.get("f/iter-001/solver/step-002/updates"))
    assert policy.id == "r/iter-001/solver/step-002/updates"
    assert (
        Path(policy.weights)
        == forked.get("f/iter-001/solver/step-002/updates").files / "update" / "policy"
    )
    assert state == "f/iter-001/solver/step-002/updates/files/update/optimizer"


def test_each_run_survives_what_is_done_to_the_other(forked: Store) -> None:
    play(forked, "f", rate=0.2)
    removals = clean.removable(forked, "r", keep_last=0, rollouts=True)
    assert sum(r.num_bytes for r in removals if r.table.at.iteration == 1) == 0, (
        "nothing of what is shared is freed"
    )
    clean.remove(forked, removals)
    forked.freshness = Rerun("1", frozenset(names("r", 1)))
    play(forked, "r")
    forked.freshness = Rerun("0", frozenset())
    assert play(forked, "f", rate=0.2) == []
    shutil.rmtree(forked.folder("r"))
    forked.freshness = Rerun("0", frozenset())
    assert play(forked, "f", rate=0.3) == names("f", 2)[1:]
    assert [
        problem for table in forked.tables("f") for problem in table.problems(thorough=True)
    ] == []


def test_a_fork_shares_no_update_that_is_left_over(forked: Store) -> None:
    last = "iter-001/solver/step-002/updates"
    forked.note_orphaned("r", [f"r/{last}"])
    fork(forked, "r", "h", 1, {})
    assert forked.find(f"r/{last}") and not forked.find(f"h/{last}")
    assert [table.address for table in forked.updates("h")] == [
        "h/iter-001/solver/step-001/updates"
    ]


def test_a_fork_begins_without_the_labels_that_people_gave_to_its_source(store: Store) -> None:
    play(store, "r")
    publish(store.run("r"), "annotations", row("annotations", labeller="Ada"), label="Ada")
    shared = fork(store, "r", "f", 1, {}).num_tables
    assert shared == 5  # the samples, and rollouts and updates of two steps
    assert not any(table.holds_labels for table in store.tables("f"))
    assert store.find("r/annotations.Ada")


def test_the_first_run_outlives_its_fork(forked: Store) -> None:
    clean.remove(forked, clean.removable(forked, "f", keep_last=0, rollouts=True))
    shutil.rmtree(forked.folder("f"))
    assert play(forked, "r") == []
    assert [
        problem for table in forked.tables("r") for problem in table.problems(thorough=True)
    ] == []


def test_a_fork_can_be_forked(forked: Store) -> None:
    play(forked, "f", rate=0.2)
    fork(forked, "f", "g", 2, {})
    shutil.rmtree(forked.folder("r"))
    assert play(forked, "g", iterations=3, rate=0.3) == names("g", 3)
    assert forked.get("g/iter-001/solver/step-001/updates").recipe["inherited"]["run"] == "f"


def test_views_show_the_shared_rows_under_both_names(forked: Store) -> None:
    play(forked, "f", rate=0.2)
    counts = "select run, iteration, count(*) as n from rollouts group by all order by all"
    assert [tuple(found.values()) for found in query(forked.root, counts)] == [
        (run, t, 2) for run in ("f", "r") for t in (1, 2)
    ]
    trained = (
        "select policy from policies where run = 'f' and iteration is not null order by policy"
    )
    assert [found["policy"] for found in query(forked.root, trained)] == [
        f"{run}/iter-{t:03d}/solver/step-{b:03d}/updates"
        for run, t in (("f", 2), ("r", 1))
        for b in (1, 2)
    ]


def test_what_is_shared_is_rerun_only_where_it_was_made(forked: Store) -> None:
    play(forked, "f", rate=0.2)
    with pytest.raises(ValueError, match=r"step-001/updates is shared with 'r'.*rerun it in 'r'"):
        check_own(forked, chosen(forked, "f", "updates"))
    check_own(forked, chosen(forked, "f", "updates", iteration=2))
    forked.freshness = Rerun("1", chosen(forked, "f", "samples"), dependents=True)
    assert play(forked, "f", rate=0.2) == ["f/samples", *names("f", 2)]


def test_a_shared_table_that_lost_a_file_is_not_made_from_other_settings(forked: Store) -> None:
    (forked.get(names("f", 1)[1]).files / "update" / "policy" / "model.safetensors").unlink()
    with pytest.raises(
        Damaged, match=r"model\.safetensors is lost; it is shared with 'r': fork that run again"
    ):
        play(forked, "f", rate=0.2)
    with pytest.raises(Damaged, match="is lost; repeat `selfplay run`"):
        fork(forked, "f", "g", 1, {})
    assert not forked.folder("g").exists()


def test_cleaned_files_stay_cleaned_in_a_fork(store: Store) -> None:
    play(store, "r")
    clean.remove(store, clean.removable(store, "r", keep_last=1))
    fork(store, "r", "f", 1, {})
    table = store.get("f/iter-001/solver/step-001/updates")
    assert {name for name, entry in table.contents.items() if entry.get("cleaned")} == {
        "files/update/optimizer/optimizer.bin",
        "files/update/policy/model.safetensors",
    }
    assert list(table.problems(thorough=True)) == []


def test_tables_without_any_file_left_are_shared_too(store: Store) -> None:
    play(store, "r")
    clean.remove(store, clean.removable(store, "r", keep_last=1, rollouts=True))
    fork(store, "r", "f", 1, {})
    table = store.get("f/iter-001/solver/step-001/rollouts")
    assert [list(table.problems(thorough=True)), table.has_rows] == [[], False]


def test_a_filesystem_without_hard_links_gets_copies(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    play(store, "r")
    monkeypatch.setattr("os.link", refuse)
    fork(store, "r", "f", 1, {})
    first, other = (store.get(f"{run}/iter-001/solver/step-002/updates") for run in ("r", "f"))
    assert not (first.folder / "part-00000.parquet").samefile(other.folder / "part-00000.parquet")
    assert play(store, "f", iterations=1) == []


def test_a_fork_that_cannot_be_whole_is_not_there(forked: Store) -> None:
    with (
        forked.lock(names("r", 1)[2]),
        pytest.raises(RuntimeError, match="is being built by process"),
    ):
        fork(forked, "r", "g", 1, {})
    assert not forked.folder("g").exists()
    assert list((forked.root / "tmp").iterdir()) == []


def test_a_fork_killed_in_the_middle_is_not_there_and_can_be_repeated(store: Store) -> None:
    play(store, "r")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(store.root)], cwd=SOURCE, check=False
    )
    assert killed.returncode == -signal.SIGKILL and not store.folder("f").exists()
    left = list((store.root / "tmp").rglob("*.parquet"))
    assert len(left) == 3
    fork(store, "r", "f", 1, {})
    assert play(store, "f", iterations=1) == []
    for path in (store.root / "tmp").iterdir():
        os.utime(path, (1, 1))
    store.sweep()
    assert list((store.root / "tmp").iterdir()) == []
    assert [
        problem for table in store.tables("r") for problem in table.problems(thorough=True)
    ] == []


def test_a_run_that_is_rebuilt_meanwhile_is_not_forked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(store, "r")
    lock = Store.lock

    @contextlib.contextmanager
    def lock_then_rebuild(self: Store, address: str) -> Iterator[None]:
        with lock(self, address):
            yield
        monkeypatch.undo()
        play(store, "r", rate=0.3)

    monkeypatch.setattr(Store, "lock", lock_then_rebuild)
    with pytest.raises(RuntimeError, match="tables of 'r' were rebuilt meanwhile"):
        fork(store, "r", "f", 1, {})
    assert not store.folder("f").exists()


@pytest.mark.parametrize(
    ("run", "new", "iteration", "said"),
    [
        ("nope", "g", 1, "there is no run 'nope'"),
        ("r", "f", 1, "there is a run 'f' already"),
        ("r", "g", 3, "run 'r' has no iteration 3; there are 1, 2"),
        ("r", "../g", 1, "a run cannot be called"),
    ],
)
def test_what_cannot_be_forked_is_named(
    forked: Store, run: str, new: str, iteration: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fork(forked, run, new, iteration, {})
