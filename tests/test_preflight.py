"""What a machine lacks for GPUs is said before anything is loaded."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from flows import profile
from flows.plan import preflight
from flows.plan.preflight import Machine, short_of_shared_memory, without_compiler
from flows.scope.config import Config as Scope

A_CARD = "0, GPU-aa, 81559, 580.65.06, Default"


@pytest.mark.parametrize(
    ("said", "visible", "gpus"),
    [
        (f"{A_CARD}\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", None, [81559 / 1024]),
        ("0, GPU-aa, [N/A], 580.82, Default\n", None, [79.6]),  # a card that shares the host's memory
        (f"{A_CARD}\n", "MIG-1c2d,MIG-3e4f", [79.6, 79.6]),
        ("", None, []),
    ],
)
def test_what_nvidia_smi_says_besides_numbers_is_understood(said, visible, gpus):
    assert list(Machine.read(said, visible, 10).gpus_gib) == gpus


def test_a_gpu_for_one_process_only_counts_if_the_run_may_use_it():
    said = f"{A_CARD}\n1, GPU-bb, 81559, 580.65.06, Exclusive_Process\n"
    assert [Machine.read(said, visible, 10).exclusive for visible in (None, "0", "1")] == [True, False, True]


def test_a_missing_compiler_and_missing_headers_are_said(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(preflight.sysconfig, "get_path", lambda *_: str(tmp_path))
    no_compiler, no_headers = without_compiler()
    assert no_compiler.startswith("there is no C compiler") and no_headers.startswith(f"{tmp_path} has no Python.h")
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


def test_a_judge_on_several_gpus_needs_shared_memory(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    judge = {"model": "Qwen/Qwen3-8B", "max_model_len": 8192, "device": "cuda", "tensor_parallel": 2}
    assert short_of_shared_memory(profile.load(Scope, "qwen3-8b-1gpu", {"judge_engine": judge}))
