"""An optimizer state that is written in the background: when it is complete, and what a kill or
a failure leaves."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.machines import Machines
from tasks.models.engine import Policy
from tasks.training.grpo import GRPOSettings, UpdateJob, UpdateResult
from tasks.update import update, updated_policy
from tests.support.rows import publish, row
from tests.support.trainers import STATE, WEIGHTS, CountingTrainer
from warehouse.fork import fork
from warehouse.rerun import Inquiry
from warehouse.store import Store, Table
from warehouse.table import find_table

PROJECT = Path(__file__).resolve().parents[2]
UPDATE = "r/iter-001/solver/step-001/updates"


class LateTrainer(CountingTrainer):
    """Keeps its state in memory; `writing` is called when the state is written."""

    def __init__(self, writing: Any = lambda: None) -> None:
        super().__init__()
        self.writing = writing
        self.left = ""

    def train(self, job: UpdateJob) -> UpdateResult:
        result = super().train(job)
        self.left = (result.optimizer_state / STATE).read_text()
        (result.optimizer_state / STATE).unlink()
        result.optimizer_state.rmdir()
        return result.model_copy(update={"state_is_written": False})

    def write_state(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.writing()
        (folder / STATE).write_text(self.left)


def learn(store: Store, trainer: Any, steps: int = 1, keep: Any = "all") -> list[Table]:
    """Consecutive updates."""
    base = store.root / "base"
    base.mkdir(exist_ok=True)
    (base / WEIGHTS).write_text("0")
    made = []
    tools = (None, None, trainer)
    now = Policy(id="base", weights=str(base), content_hash="0")
    state = None
    machines = Machines(*tools, keep_checkpoints=keep)  # pyright: ignore[reportArgumentType]
    for number in range(1, steps + 1):
        place = store.run("r").iteration(1).phase("solver").step(number)
        rows = store.find(place.address("batches"))
        if rows is None:
            rows = publish(place, "batches", row("batches"))
        settings = GRPOSettings()
        start: Any = {
            "policy": now,
            "reference": now,
            "optimizer_state": state,
            "settings": settings,
        }
        made.append(update(place, rows, role="solver", trainer=trainer, **start))
        machines.free_superseded(store, made[-1])
        now, state = updated_policy(made[-1])
    return made


def state_of(store: Store, address: str = UPDATE) -> Path:
    return store.get(address).files / "update" / "optimizer" / STATE


def test_a_policy_is_published_before_its_state_and_the_state_as_a_part_of_the_same_table(store):
    may_write = threading.Event()
    [made] = learn(store, LateTrainer(may_write.wait))
    policy, _ = updated_policy(made)
    assert Path(policy.weights, WEIGHTS).read_text() == "1"
    assert store.get(UPDATE).awaits == ("files/update/optimizer",) and not state_of(store).exists()
    may_write.set()
    store.behind.wait()
    whole = store.get(UPDATE)
    assert state_of(store).read_text() == "1"
    assert not whole.awaits and "files/update/optimizer/optimizer.bin" in whole.contents
    assert whole.content_hash == made.content_hash and not list(whole.problems(thorough=True))
    state_of(store).write_text("2")
    assert list(whole.problems(thorough=True))


def test_checkpoints_of_an_update_stay_until_its_state_is_written(store):
    """A kill before makes the update again, from its last checkpoint."""
    may_write = threading.Event()
    checkpoint = store.unfinished(UPDATE) / "key" / "step-001"
    checkpoint.mkdir(parents=True)
    learn(store, LateTrainer(may_write.wait))
    assert checkpoint.exists()
    may_write.set()
    store.behind.wait()
    assert not store.unfinished(UPDATE).exists()


def test_the_next_update_waits_for_the_state_that_it_starts_from(store):
    may_write = threading.Event()
    threading.Timer(0.3, may_write.set).start()
    learn(store, LateTrainer(may_write.wait), steps=3)
    store.behind.wait()
    assert [state_of(store, UPDATE[:-9] + f"{n}/updates").read_text() for n in (1, 2, 3)] == [
        "1",
        "2",
        "3",
    ]


def test_a_state_is_freed_when_the_one_that_supersedes_it_is_written(store):
    writes = iter((lambda: None, lambda: may_write.wait()))
    may_write = threading.Event()
    learn(store, LateTrainer(lambda: next(writes)()), steps=2, keep="last")
    assert state_of(store).exists()
    may_write.set()
    store.behind.wait()
    assert (
        not state_of(store).exists()
        and state_of(store, UPDATE.replace("-001/u", "-002/u")).exists()
    )


def test_a_failed_write_stops_the_run_at_its_next_stage_and_the_update_is_made_again(store):
    def fail() -> None:
        raise OSError(28, "No space left on device")

    [made] = learn(store, LateTrainer(fail))
    wait_for(store.behind._work)
    with pytest.raises(RuntimeError, match=r"No space left on device.*then repeat the command"):
        learn(store, LateTrainer(), steps=2)
    assert store.get(UPDATE).awaits and not list((store.root / "tmp").iterdir())
    learn(store, LateTrainer())
    store.behind.wait()
    assert state_of(store).read_text() == "1"
    assert updated_policy(store.get(UPDATE)) == updated_policy(made)


def test_what_lacks_its_state_is_stale_and_cannot_be_forked(store):
    def fail() -> None:
        raise OSError(5, "input/output error")

    learn(store, LateTrainer(fail))
    with pytest.raises(RuntimeError):
        store.behind.wait()
    again = Store(store.root, Inquiry())
    learn(again, LateTrainer())
    assert (
        UPDATE,
        f"{UPDATE}/files/update/optimizer is not written yet",
    ) in again.freshness.reasons
    with pytest.raises(ValueError, match="not written yet: wait for it, or repeat `selfplay run`"):
        fork(Store(store.root), "r", "branch", 1, {})


def test_while_a_state_is_written_its_table_is_being_worked_on(store):
    begun = threading.Event()
    may_write = threading.Event()
    learn(store, LateTrainer(lambda: begun.set() or may_write.wait()))
    begun.wait()
    assert [work["address"] for work in store.working("r")] == [UPDATE]
    may_write.set()
    store.behind.wait()
    assert not list(store.working("r"))


def test_after_a_failure_nothing_that_waited_for_it_is_done(store):
    done: list[str] = []
    store.behind.start(lambda: 1 / 0)
    store.behind.start(lambda: done.append("freed"))
    with pytest.raises(ZeroDivisionError):
        store.behind.wait()
    assert not done


KILLED = """
import sys, time
from pathlib import Path
from tests.flows.test_behind import LateTrainer, learn
from warehouse.store import Store

def writing():
    print("writing", flush=True)
    time.sleep(60)

writes = iter((lambda: None, writing))
store = Store(sys.argv[1])
learn(store, LateTrainer(lambda: next(writes)()), steps=2, keep="last")
store.behind.wait()
"""


def test_a_process_killed_between_policy_and_state_loses_that_update_and_no_other(store):
    flow = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(store.root)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert flow.stdout is not None and flow.stdout.readline() == "writing\n"
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    second = UPDATE.replace("-001/u", "-002/u")
    assert state_of(store).exists(), "what the lost state is made from is not freed before"
    published = find_table(store.root, second)
    assert published and published.awaits
    trainer = LateTrainer()
    learn(store, trainer, steps=2, keep="last")
    store.behind.wait()
    assert len(trainer.jobs) == 1, "the first update stands"
    assert state_of(store, second).read_text() == "2" and not state_of(store).exists()
    assert updated_policy(store.get(second)) == updated_policy(published)
