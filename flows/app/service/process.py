"""A background process, identified by a file, that outlives the command that started it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil


@dataclass(frozen=True)
class Process:
    """A process identified by pid and start time, so a reused pid is never mistaken for it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def write(self, pid: int) -> None:
        """Write the identity of the process `pid` to the file, atomically.

        Raises FileNotFoundError if the process has already ended.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".fresh")
        with open(fresh, "w") as file:
            file.write(identity(pid))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)

    def find(self) -> psutil.Process | None:
        """The running process; None if it has ended, or if a power failure left its file empty."""
        try:
            return running_process(self.path.read_text())
        except FileNotFoundError:
            return None

    def stop(self, grace_s: float = 10.0) -> bool:
        """End the process and its children; return whether it was running."""
        process = self.find()
        if process is not None:
            family = [process, *_children(process)]
            for member in family:
                _signal(member, "terminate")
            _, stubborn = psutil.wait_procs(family, timeout=grace_s)
            for member in stubborn:
                _signal(member, "kill")
            psutil.wait_procs(stubborn, timeout=5.0)
        self.path.unlink(missing_ok=True)
        return process is not None


def identity(pid: int) -> str:
    """JSON that distinguishes the process `pid` from all others, even later ones with its pid."""
    return json.dumps({"pid": pid, "start": _start(pid)})


def running_process(identity: str) -> psutil.Process | None:
    """The process with an `identity`; None if it has ended, or if the text is not an identity."""
    try:
        kept = json.loads(identity)
        process = psutil.Process(kept["pid"])
        is_same = _start(process.pid) == kept["start"]
        is_running = is_same and process.status() != psutil.STATUS_ZOMBIE
    except (
        FileNotFoundError,
        ProcessLookupError,
        ValueError,
        KeyError,
        TypeError,
        psutil.NoSuchProcess,
    ):
        return None
    if is_running:
        return process
    return None


def _start(pid: int) -> str:
    """When a process started, in clock ticks since boot, and which boot that was.

    psutil's start time changes when the clock is set.
    """
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {ticks}"


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, action: Literal["terminate", "kill"]) -> None:
    try:
        getattr(process, action)()
    except psutil.NoSuchProcess:
        return
