# torch exports these names without saying so.
# pyright: reportPrivateImportUsage=false
"""A sharded state is written whole, or the write fails."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.distributed import HashStore
from torch.distributed.checkpoint import filesystem
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from tasks.training.state import Share


@pytest.fixture
def process_group():
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def share() -> Share:
    mesh = init_device_mesh("cpu", (1,))
    values = [distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)]) for _ in range(8)]
    weights = [value.to_local() for value in values]
    moments = [{"exp_avg": weight} for weight in weights]
    return Share(weights, moments, [value._spec for value in values], [{"lr": 0.1}])


def test_a_full_disk_in_a_writing_thread_is_an_error(tmp_path, process_group, monkeypatch):
    """Several threads write; torch reports errors of the main one only."""
    share().save(tmp_path / "whole", writes=True, weights=True)
    write = filesystem._write_item

    def fails_in_threads(*given):
        if threading.current_thread() is not threading.main_thread():
            raise OSError("No space left on device")
        return write(*given)

    monkeypatch.setattr(filesystem, "_write_item", fails_in_threads)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(OSError, match="of 16 parts were written"):
        share().save(tmp_path / "part", writes=True, weights=True)
