"""Comparisons for the tests of `match`, in a module that worker processes can import."""

import os
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tasks.processes import comparisons
from tasks.prompt import Malformed

TRAPS = ("hang", "spin")


def begin_a_trap() -> None:
    """Tell `limits_of_traps` that this process is in a comparison that will not end."""
    _mark(os.getpid()).touch()


def _mark(pid: int) -> Path:
    return Path(tempfile.gettempdir(), f"selfplay-trap-{pid}")


def limits_of_traps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Start the time limit of a comparison only when it calls `begin_a_trap`, if it ever does.

    So a slow machine never ends a comparison that would return. Returns a list that fills with the
    limits of those that called it, in seconds.
    """
    limits = list[float]()
    receive = comparisons.Worker._receive

    def receive_patiently(worker: comparisons.Worker, within_s: float) -> tuple[str, Any]:
        mark = _mark(worker._process.pid)
        while not worker._pipe.poll(0.01):
            if mark.exists():
                mark.unlink()
                limits.append(within_s)
                return receive(worker, within_s)
        return receive(worker, within_s)

    monkeypatch.setattr(comparisons.Worker, "_receive", receive_patiently)
    return limits


def compare(task: dict[str, Any], answer: str) -> bool:
    """Equal texts match; an answer can also ask for a fault."""
    if answer in TRAPS:
        begin_a_trap()
    if answer == "hang":
        while True:
            time.sleep(1)
    if answer == "spin":
        while True:
            pass
    if answer == "crash":
        os.abort()
    if answer == "memory":
        return bool([0] * (1 << 40))
    if answer == "deep":
        return compare_deeply(task, answer)
    if answer == "unread":
        raise Malformed("no number")
    if answer == "fault":
        raise KeyError("a fault of the rule")
    return task["reference"] == answer


def compare_deeply(task: dict[str, Any], answer: str) -> bool:
    return compare_deeply(task, answer) and True


def compare_once(task: dict[str, Any], answer: str, *, log: str) -> bool:
    """Like `compare`, with a line in the file `log` for every comparison."""
    with open(log, "a") as file:
        file.write(answer + "\n")
    return compare(task, answer)


def equal_numbers(task: dict[str, Any], answer: str) -> bool:
    return Fraction(task["reference"]) == Fraction(answer)


def compare_where(task: dict[str, Any], answer: str, *, log: str) -> bool:
    """Like `compare`, with the process id in the file `log`; slow enough for a second process to
    take its share."""
    time.sleep(0.3)
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")
    return compare(task, answer)
