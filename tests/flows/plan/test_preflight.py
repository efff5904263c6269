"""What a machine lacks for GPUs is said before anything is loaded."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest

from flows.plan import preflight
from flows.plan.preflight import (
    Machine,
    busy,
    check_machine,
    short_of_shared_memory,
    without_compiler,
)
from flows.scope.config import Config as Scope
from flows.settings import profile

A_CARD = "0, GPU-aa, 81559, 580.65.06, Default, 81007, 4"


@pytest.mark.parametrize(
    ("said", "visible", "gpus"),
    [
        (f"{A_CARD}\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", None, [81559 / 1024]),
        # a card that shares the host's memory
        ("0, GPU-aa, [N/A], 580.82, Default, [N/A], [N/A]\n", None, [79.6]),
        (f"{A_CARD}\n", "MIG-1c2d,MIG-3e4f", [79.6, 79.6]),
        ("", None, []),
    ],
)
def test_what_nvidia_smi_says_besides_numbers_is_understood(said, visible, gpus):
    assert list(Machine.read(said, visible, 10).gpus_gib) == gpus


def test_a_gpu_for_one_process_only_counts_if_the_run_may_use_it():
    said = f"{A_CARD}\n1, GPU-bb, 81559, 580.65.06, Exclusive_Process, 81007, 4\n"
    assert [Machine.read(said, visible, 10).exclusive for visible in (None, "0", "1")] == [
        True,
        False,
        True,
    ]


def test_a_missing_compiler_and_missing_headers_are_said(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(preflight.sysconfig, "get_path", lambda *_: str(tmp_path))
    no_compiler, no_headers = without_compiler()
    assert no_compiler.startswith("there is no C compiler") and no_headers.startswith(
        f"{tmp_path} has no Python.h"
    )
    monkeypatch.setenv("CC", "cc")
    (tmp_path / "Python.h").touch()
    assert without_compiler() == []


@pytest.mark.parametrize(
    ("name", "free", "refused"),
    [
        ("qwen3-8b-6gpu-lora", 64 << 20, True),  # what Docker gives
        ("qwen3-8b-6gpu-lora", 1 << 30, False),
        ("qwen3-8b-1gpu", 64 << 20, False),
    ],
)
def test_several_gpus_need_shared_memory(monkeypatch, name, free, refused):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert bool(short_of_shared_memory(profile.load(Scope, name))) == refused


def test_shared_memory_that_is_read_only_is_named_before_an_engine_starts(tmp_path, monkeypatch):
    cfg = profile.load(Scope, "micro")
    monkeypatch.setattr("flows.plan.preflight.SHARED_MEMORY", tmp_path)
    check_machine(cfg, tmp_path, loads=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any folder
    with pytest.raises(ValueError, match=f"{tmp_path} is read-only, and an engine writes to it"):
        check_machine(cfg, tmp_path, loads=True)


def test_a_judge_on_several_gpus_needs_shared_memory(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    judge = {
        "model": "Qwen/Qwen3-8B",
        "max_model_len": 8192,
        "device": "cuda",
        "tensor_parallel": 2,
    }
    assert short_of_shared_memory(profile.load(Scope, "qwen3-8b-1gpu", {"judge_engine": judge}))


def cards(*free_and_used: tuple[int, int]) -> str:
    """What nvidia-smi says of GPUs with so many MiB free and used."""
    lines = (
        f"{i}, GPU-{i}, 81559, 580.65.06, Default, {f}, {u}"
        for i, (f, u) in enumerate(free_and_used)
    )
    return "\n".join(lines)


def test_a_gpu_that_others_use_is_named_with_what_is_free_and_needed():
    """An engine takes 0.9 of 81,000 MiB, 71.2 GiB, and 0.6 for CUDA. The first GPU has that, the
    second has not."""
    two = {"num_engines": 2, "trainer_processes": 2, "engine.gpu_memory_utilization": 0.9}
    cfg = profile.load(Scope, "qwen3-8b-6gpu-lora", two)
    idle = (80990, 10)
    taken = (40960, 40040)
    assert busy(cfg, Machine.read(cards(idle, idle, taken), None, 10)) == [], (
        "the third is not used"
    )
    found, way_out = busy(cfg, Machine.read(cards(idle, taken), None, 10))
    assert found == "GPU 1 has 40.0 GiB free, and the run needs 71.8"
    assert "CUDA_VISIBLE_DEVICES" in way_out and "engine.gpu_memory_utilization" in way_out
    assert busy(cfg, Machine.read(cards(taken, idle, idle), "2,1", 10)) == []


def test_an_update_needs_its_memory_where_engines_take_less():
    cfg = profile.load(Scope, "qwen3-8b-1gpu", {"engine.gpu_memory_utilization": 0.3})
    [found, _] = busy(cfg, Machine.read(cards((30720, 50280)), None, 10))
    assert found == "GPU 0 has 30.0 GiB free, and the run needs 31.7"


def test_memory_that_is_not_known_is_not_judged():
    cfg = profile.load(Scope, "qwen3-8b-1gpu")
    unknown = "0, GPU-aa, [N/A], 580.82, Default, [N/A], [N/A]\n"
    assert (
        busy(cfg, Machine.read(unknown, None, 10))
        == busy(cfg, Machine.read(A_CARD, "MIG-1c2d", 10))
        == []
    )


@pytest.mark.parametrize("ends", [True, False])
def test_a_run_waits_for_engines_that_are_ending_and_not_for_others(monkeypatch, tmp_path, ends):
    """A command only submits the run, which may be queued behind the one that has the GPU."""
    cfg = profile.load(Scope, "qwen3-8b-1gpu")
    said = [Machine.read(cards((1000, 80000)), None, 10**13)] * 3 + [
        Machine.read(A_CARD, None, 10**13)
    ] * ends
    left = iter(said)
    monkeypatch.setattr(Machine, "here", lambda _: next(left, said[-1]))
    monkeypatch.setattr(preflight, "POLL_S", 0.0)
    monkeypatch.setattr(preflight, "BUSY_S", 1e9 if ends else 0.0)
    for check in ("without_compiler", "wrong_build"):
        monkeypatch.setattr(preflight, check, lambda *_: [])
    check_machine(cfg, tmp_path)
    if ends:
        check_machine(cfg, tmp_path, loads=True)
    else:
        with pytest.raises(ValueError, match=r"GPU 0 has 1\.0 GiB free, and the run needs 67\.8"):
            check_machine(cfg, tmp_path, loads=True)
