"""A process in a container or in a job of a cluster may use less memory than the machine has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tasks.processes.host_memory import HostMemory, host_memory

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine of 64 GiB with 40 available."""
    memory = psutil.virtual_memory()._replace(total=64 * GIB, available=40 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def group(
    folder: Path,
    limit: object,
    use: int,
    *stat: str,
    files: tuple[str, str] = ("memory.max", "memory.current"),
):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files[0]).write_text(f"{limit}\n")
    (folder / files[1]).write_text(f"{use}\n")
    (folder / "memory.stat").write_text("\n".join(stat))


def measured(root: Path, *lines: str) -> HostMemory:
    (root / "own").write_text("\n".join(lines))
    return host_memory(root / "fs", root / "own")


def test_the_limit_of_a_container_holds_and_its_cached_files_count_as_available(tmp_path):
    group(tmp_path / "fs", 16 * GIB, 10 * GIB, "anon 1", f"inactive_file {3 * GIB}")
    assert measured(tmp_path, "0::/") == HostMemory(16 * GIB, 9 * GIB)


def test_the_tightest_of_the_groups_around_a_process_holds(tmp_path):
    group(tmp_path / "fs/slurm/job_7/step_0", "max", 2 * GIB)
    group(tmp_path / "fs/slurm/job_7", 32 * GIB, 20 * GIB)
    group(tmp_path / "fs/slurm", 48 * GIB, 40 * GIB)
    assert measured(tmp_path, "0::/slurm/job_7/step_0") == HostMemory(32 * GIB, 8 * GIB)


def test_version_1_has_other_names_and_a_limit_beyond_the_machine_is_none(tmp_path):
    files = "memory.limit_in_bytes", "memory.usage_in_bytes"
    group(
        tmp_path / "fs/memory/docker/a", 8 * GIB, 7 * GIB, f"total_inactive_file {GIB}", files=files
    )
    group(tmp_path / "fs/memory", 2**63 - 4096, 30 * GIB, files=files)
    assert measured(tmp_path, "12:cpu,cpuacct:/", "4:memory:/docker/a") == HostMemory(
        8 * GIB, 2 * GIB
    )


def test_a_group_above_its_limit_has_nothing_available(tmp_path):
    group(tmp_path / "fs", 4 * GIB, 5 * GIB)
    assert measured(tmp_path, "0::/") == HostMemory(4 * GIB, 0)


@pytest.mark.parametrize("line", ["0::/elsewhere", "3:cpu:/"])
def test_without_a_readable_limit_the_machine_s_memory_is_meant(tmp_path, line):
    assert measured(tmp_path, line) == HostMemory(64 * GIB, 40 * GIB)
    assert host_memory(tmp_path, tmp_path / "missing") == HostMemory(64 * GIB, 40 * GIB)
