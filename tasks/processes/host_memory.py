"""The memory that this process may use.

A container or a cluster job may use less than the machine has (cgroups).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

# Files of a control group: its limit, its usage, and the line of memory.stat that counts cached
# files which it can release.
VERSION_2 = "memory.max", "memory.current", "inactive_file"
VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


@dataclass(frozen=True)
class HostMemory:
    """Total bytes, and bytes that are free or can be freed."""

    total: int
    available: int


def host_memory(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> HostMemory:
    """The machine's memory, or that of the tightest of this process's control groups.

    `groups` is where control groups are mounted, `own` lists those of this process. Groups that
    cannot be read, as on other systems, have no limit.
    """
    machine = psutil.virtual_memory()
    total = machine.total
    available = machine.available
    for folder, (limit_file, use_file, cache) in _groups(groups, own):
        limit = _bytes(folder / limit_file)
        use = _bytes(folder / use_file)
        if limit is not None and use is not None and limit < machine.total:
            total = min(total, limit)
            available = min(available, max(0, limit - use + _stat(folder, cache)))
    return HostMemory(total, available)


def _groups(groups: Path, own: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """This process's groups and all groups around them: their folders, and the files to read."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            root = groups / "memory"
            files = VERSION_1
            if number == "0":
                root = groups
                files = VERSION_2
            inside = PurePosixPath(path.lstrip("/"))
            yield from ((root / folder, files) for folder in (inside, *inside.parents))


def _bytes(path: Path) -> int | None:
    """The number in a file; None for "max" or a file that cannot be read."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(folder: Path, name: str) -> int:
    """The number in the line `name` of memory.stat, or 0."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
