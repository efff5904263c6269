"""Comparisons for the tests of `match`: what a worker process is given must be importable there."""

import time
from fractions import Fraction
from typing import Any

from tasks.prompt import Malformed


def compare(task: dict[str, Any], answer: str) -> bool:
    """Equal texts match; an answer can also ask for what may go wrong."""
    if answer == "hang":
        while True:
            time.sleep(1)
    if answer == "spin":
        while True:
            pass
    if answer == "crash":
        import os

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
    """The same, and a line in the file `log` for every comparison."""
    with open(log, "a") as file:
        file.write(answer + "\n")
    return compare(task, answer)


def equal_numbers(task: dict[str, Any], answer: str) -> bool:
    return Fraction(task["reference"]) == Fraction(answer)
