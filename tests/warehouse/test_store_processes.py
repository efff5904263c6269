"""A store with processes that die or collide: locks, abandoned drafts, what a kill may leave."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tasks.training.checkpoint import Checkpoint
from tests.support.rows import publish, samples
from warehouse.schemas import SAMPLES
from warehouse.store import Store

PROJECT = Path(__file__).resolve().parents[2]

WRITER = """
import os, sys
from tests.support.rows import row
from warehouse.schemas import SAMPLES
from warehouse.store import Store

store = Store(sys.argv[1])
with store.draft(SAMPLES) as draft:
    draft.write([row("samples", sample_id="a")])
    {dies}
    store.publish(draft, "r/samples", {{"key": "new"}})
"""
DIES_REMOVING = """
import os, shutil, sys
from pathlib import Path
from tests.support.rows import publish, samples
from warehouse.store import Store

def die_half_way(folder, **_):
    for metrics in Path(folder).rglob("steps.json"):
        metrics.unlink()
        os.kill(os.getpid(), 9)

shutil.rmtree = die_half_way
publish(Store(sys.argv[1]).run("r"), "samples", *samples("a"))
"""
HOLDER = """
import sys, time
from warehouse.store import Store

with Store(sys.argv[1]).lock("r/samples"):
    print("held", flush=True)
    time.sleep(3600)
"""


def run_python(code: str, store: Store) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "dies",
    ["os.kill(os.getpid(), 9)", "os.rename = lambda *paths: os.kill(os.getpid(), 9)"],
    ids=["before publishing", "at the rename, with everything written"],
)
def test_a_process_killed_before_the_rename_leaves_the_old_table_or_none(store, dies):
    assert run_python(WRITER.format(dies=dies), store).wait() == -signal.SIGKILL
    assert store.find("r/samples") is None
    assert list(store.tables()) == []
    assert publish(store.run("r"), "samples", *samples("b")).rows() == samples("b")


def test_a_process_killed_as_it_removes_checkpoints_leaves_none_to_resume_from(store, monkeypatch):
    checkpoints = store.unfinished("r/samples") / "key"
    checkpoint = checkpoints / "step-000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / Checkpoint.STEPS).write_text("[]")
    assert run_python(DIES_REMOVING, store).wait() == -signal.SIGKILL
    assert store.get("r/samples").rows() == samples("a")
    assert Checkpoint.last(checkpoints) is None
    monkeypatch.setattr("warehouse.store.OLD_DRAFT_S", -1.0)
    store.sweep()
    assert list((store.root / "tmp").iterdir()) == []


def test_a_second_holder_of_a_lock_is_refused_by_name(store):
    with store.lock("r/samples"):
        with pytest.raises(
            RuntimeError,
            match=rf"r/samples is being built by process {os.getpid()} on .* since .*; wait",
        ) as refused:
            store.lock("r/samples").__enter__()
        assert os.uname().nodename in str(refused.value)
        with store.lock("r/other"):
            pass
    with store.lock("r/samples"):
        pass


def test_the_lock_of_a_killed_process_is_free(store):
    holder = run_python(HOLDER, store)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    (working,) = store.working()
    assert (working["address"], working["pid"]) == ("r/samples", holder.pid)
    with pytest.raises(RuntimeError, match=f"built by process {holder.pid} on "):
        store.lock("r/samples").__enter__()
    holder.kill()
    holder.wait()
    assert list(store.working()) == []
    with store.lock("r/samples"):
        assert json.loads((store.root / "locks" / "r~samples").read_text())["pid"] == os.getpid()


def test_looking_at_a_lock_does_not_refuse_who_wants_it(store, monkeypatch):
    # what `working` does, but for as long as 50 attempts take
    with open(store.root / "locks" / "r~samples", "a+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        waits = list[float]()

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == 50:
                fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr("warehouse.locks.time.sleep", wait)
        with store.lock("r/samples"):
            assert len(waits) == 50


def test_a_lock_that_is_looked_at_for_ever_is_refused_at_last(store, monkeypatch):
    monkeypatch.setattr("warehouse.locks.LOOK_S", 0.0)
    with open(store.root / "locks" / "r~samples", "a+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(RuntimeError, match="r/samples is being built by another process"):
            store.lock("r/samples").__enter__()


def test_no_two_hold_one_lock_however_they_come_and_go(store):
    inside = 0
    most = 0
    entered = 0

    def come_and_go():
        nonlocal inside, most, entered
        num_refused = 0
        num_entered = 0
        while num_entered < 10 or num_entered + num_refused < 30:
            try:
                with store.lock("r/samples"):
                    inside += 1
                    most, entered = max(most, inside), entered + 1
                    time.sleep(0.001)  # lets another thread enter, if the lock lets it
                    inside -= 1
                num_entered += 1
            except RuntimeError:
                num_refused += 1

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and entered >= 40


def test_a_store_may_lie_on_nfs(store, monkeypatch):
    """NFS grants exclusive locks only on files that are open for writing (flock(2)), not on
    folders."""
    flock = fcntl.flock

    def flock_on_nfs(file, how):
        number = file if isinstance(file, int) else file.fileno()
        if how & fcntl.LOCK_EX and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock_on_nfs)
    publish(store.run("r"), "samples", *samples("a"))
    with store.lock("r/samples"):
        assert [w["address"] for w in store.working()] == ["r/samples"]
    assert list((store.root / "tmp").iterdir()) == []


def test_drafts_of_dead_processes_are_swept_and_those_of_living_ones_stay(store, monkeypatch):
    killed = run_python(WRITER.format(dies="os.kill(os.getpid(), 9)"), store)
    killed.wait()
    left = {path.name for path in (store.root / "tmp").iterdir()}
    assert left
    monkeypatch.setattr("warehouse.store.OLD_DRAFT_S", 0.0)
    with store.draft(SAMPLES) as draft:
        draft.write(samples("b"))
        store.sweep()
        assert not left & {path.name for path in (store.root / "tmp").iterdir()}
        store.publish(draft, "r/samples", {"key": "new"})
    assert [r["sample_id"] for r in store.get("r/samples").rows()] == ["b"]
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_lock_that_does_not_say_who_holds_it_is_a_lock(store, text):
    (store.root / "locks" / "a-folder").mkdir()
    with store.lock("r/samples"):
        (store.root / "locks" / "r~samples").write_text(text)
        for meet in (store.check_free, lambda address: store.lock(address).__enter__()):
            with pytest.raises(RuntimeError, match="r/samples is being built by another process"):
                meet("r/samples")
        assert list(store.working()) == []
    store.check_free("r/samples")
