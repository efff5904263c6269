"""What a terminal shows: whole names at any width, and an end at Ctrl-C."""

from __future__ import annotations

import io
import sys

import pytest

from flows.app.command.tables import print_table

ADDRESS = "mine/iter-001/challenger/step-001/rollouts.challenger"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    rows: list[dict[str, object]], columns: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    terminal = Terminal()
    with monkeypatch.context() as here:
        here.setenv("COLUMNS", str(columns))
        here.setenv("NO_COLOR", "1")
        here.setattr(sys, "stdout", terminal)
        print_table(rows)
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize("columns", [200, 80, 60, 20])
def test_a_narrow_terminal_cuts_off_no_name_and_no_number(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "address": ADDRESS,
            "stage": "generate",
            "rows": 1234567,
            "seconds": 26.784,
            "why": "sampled once more",
        }
    ]
    [line] = [line for line in shown(rows, columns, monkeypatch) if ADDRESS in line]
    assert {"generate", "1234567", "26.784"} <= set(line.split())


def test_prose_is_wrapped_between_words_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown([{"name": "gsm8k", "title": "eight thousand sums for schools"}], 30, monkeypatch)
    assert ["│", "gsm8k", "│", "eight", "thousand", "│"] in map(str.split, lines)
    assert len(lines[-1]) == 30
