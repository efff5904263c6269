"""The trainer's processes: two train a chain of updates from memory, and no failure leaves a
process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from tasks.training import kept_state
from tasks.training.group import Group, LocalMember, TrainerDied
from tasks.training.grpo import GRPOSettings, UpdateJob, UpdateResult
from tests.support.grpo_jobs import SCHEMA, SETTINGS, make_models, make_rows

STEPS = {**SETTINGS, "beta": 0.5, "optimizer_steps": 2, "micro_batch_size": 1}
LORA = {**STEPS, "lora": {"rank": 4, "alpha": 8}}
BFLOAT16 = {**STEPS, "export_dtype": "bfloat16"}
LONG = {**STEPS, "optimizer_steps": 2000}


class ShardingGroup(Group):
    program = "tests.support.sharded_member"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def group(tmp_path: Path, kind: type[Group] = Group) -> Group:
    return kind(tmp_path / "trainer.log", 2, "cpu", 1)


def processes(group: Group) -> list[subprocess.Popen[bytes]]:
    members = [member for member in group.members if isinstance(member, LocalMember)]
    return [member.process for member in members]


def job(
    tmp_path: Path, folder: Path, name: str, settings: dict, *, num_rows: int = 5, **start: Any
) -> UpdateJob:
    rows = make_rows(folder / "policy", n=min(num_rows, 5), seed=len(name))
    rows *= -(-num_rows // len(rows))
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / f"{name}.parquet")
    places = {
        "policy": folder / "base",
        "reference": folder / "base",
        "out": tmp_path / name,
        **start,
    }
    return UpdateJob(
        batch=tmp_path / f"{name}.parquet", settings=GRPOSettings(**settings), **places
    )


def after(first: UpdateResult, settings: dict) -> dict[str, Any]:
    return {
        "adapter" if "lora" in settings else "policy": first.policy,
        "optimizer_state": first.optimizer_state,
    }


def weights_of(policy: Path) -> dict[str, Any]:
    return {
        name: value
        for file in policy.glob("*.safetensors")
        for name, value in load_file(file).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"), [(Group, LORA), (ShardingGroup, STEPS), (ShardingGroup, BFLOAT16)]
)
def test_two_processes_go_on_from_memory_as_fresh_ones_do_from_disk(
    tmp_path, folder, kind, settings
):
    resident = group(tmp_path, kind)
    fresh = group(tmp_path, kind)
    first = resident.train(job(tmp_path, folder, "first", settings, state_later=True))
    assert not first.state_is_written
    resident.write_state(first.optimizer_state)
    members = list(resident.members)
    ours = resident.train(job(tmp_path, folder, "second", settings, **after(first, settings)))
    assert resident.members == members
    assert kept_state.GOES_ON in (tmp_path / "trainer.log").read_text()
    resident.close()
    theirs = fresh.train(
        job(tmp_path, folder, "second", settings, **after(first, settings), out=tmp_path / "again")
    )
    fresh.close()
    before, one, other = (
        weights_of(policy) for policy in (folder / "policy", ours.policy, theirs.policy)
    )
    assert one.keys() == other.keys() and (kind is Group or one.keys() == before.keys())
    assert all(one[name].equal(other[name]) for name in other)
    files = len([*ours.policy.glob("*.safetensors")])
    assert files > 1 if kind is ShardingGroup else files == 1
    assert [s.loss for s in ours.steps] == [s.loss for s in theirs.steps]


@pytest.mark.slow
def test_processes_that_sharded_weights_train_an_adapter_next(tmp_path, folder, monkeypatch):
    # DDP in processes whose GPUs are CPUs
    monkeypatch.setenv("ACCELERATE_BYPASS_DEVICE_MAP", "true")
    pair = group(tmp_path, ShardingGroup)
    pair.train(job(tmp_path, folder, "full", STEPS))
    made = pair.train(job(tmp_path, folder, "adapter", LORA))
    pair.close()
    assert (made.policy / "adapter_model.safetensors").exists()


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_the_next_update_starts_anew(tmp_path, folder):
    pair = group(tmp_path)
    pair.start()
    killed, other = processes(pair)
    threading.Timer(8, killed.send_signal, (signal.SIGKILL,)).start()
    with pytest.raises(TrainerDied, match="SIGKILL"):
        pair.train(job(tmp_path, folder, "long", LONG, num_rows=20_000))
    assert other.poll() is not None
    left = pair.train(job(tmp_path, folder, "short", LORA, state_later=True))
    assert left.num_datums == 5 and not left.state_is_written
    processes(pair)[0].kill()
    with pytest.raises(TrainerDied, match="SIGKILL"):
        pair.write_state(left.optimizer_state)
    with pytest.raises(TrainerDied, match="before they had written"):
        pair.write_state(left.optimizer_state)


@pytest.mark.slow
def test_a_stopped_process_is_waited_for_and_does_not_outlive_its_group(tmp_path, folder):
    pair = group(tmp_path)
    pair.start()
    stopped = processes(pair)[1]
    time.sleep(1)
    stopped.send_signal(signal.SIGSTOP)
    threading.Timer(15, stopped.send_signal, (signal.SIGCONT,)).start()
    first = pair.train(job(tmp_path, folder, "first", LORA, state_later=True))
    assert first.num_datums == 5
    stopped.send_signal(signal.SIGSTOP)
    threading.Timer(1, stopped.send_signal, (signal.SIGCONT,)).start()
    pair.write_state(first.optimizer_state)
    assert (first.optimizer_state / "optimizer.pt").exists()
    stopped.send_signal(signal.SIGSTOP)
    pair.close()
    assert stopped.poll() == -signal.SIGKILL


@pytest.mark.slow
def test_a_failure_of_both_is_the_callers_and_leaves_no_process(tmp_path, folder):
    pair = group(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        pair.train(job(tmp_path, folder, "first", STEPS, policy=tmp_path / "none"))
    assert not [
        p for p in psutil.Process(os.getpid()).children() if "tasks.training.member" in p.cmdline()
    ]


class Scripted:
    """A member that has sent `answers`, and may have ended since."""

    def __init__(self, tmp_path: Path, *answers: Any, ends: bool = False) -> None:
        self.log_file = tmp_path / "log"
        self.pipe, self._theirs = Pipe()
        for answer in answers:
            self._theirs.send(answer)
        if ends:
            self._theirs.close()

    def ended(self, out: Path) -> str:
        return "the loss of its node"

    def close(self, patience_s: float) -> None:
        self.pipe.close()


def test_a_failure_that_follows_from_the_end_of_another_process_is_told_as_that_end(tmp_path):
    pair = group(tmp_path)
    reset = RuntimeError("Connection reset by peer")
    pair.members = [Scripted(tmp_path, reset), Scripted(tmp_path, ends=True)]
    with pytest.raises(TrainerDied, match="ended by the loss of its node"):
        pair.write_state(tmp_path)
    pair.members = [Scripted(tmp_path, reset), Scripted(tmp_path, ValueError("its own"))]
    with pytest.raises(RuntimeError, match="reset by peer"):
        pair.write_state(tmp_path)
