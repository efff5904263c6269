"""What a terminal shows: whole names at any width, and an end at Ctrl-C."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from flows.app.command.evaluate import list_benchmarks
from flows.app.command.screen import print_prose
from flows.app.command.tables import is_too_wide, print_records, print_table

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
    lines = shown(rows, columns, monkeypatch)
    assert {"generate", "1234567", "26.784"} <= set(" ".join(lines).replace(";", " ").split())
    assert ADDRESS in "".join(lines)
    if columns == 80:
        assert max(map(len, lines)) < columns


def test_columns_of_zeros_give_way_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"address": ADDRESS, "rows": n, "gpu_s": 0.0, "hours": "0.000"} for n in (12, 7)]
    lines = shown(rows, 68, monkeypatch)
    assert lines[0] == "0 in every row: gpu_s, hours"
    assert [line.split()[3] for line in lines if ADDRESS in line] == ["12", "7"]


def test_prose_is_one_line_in_a_pipe_and_wrapped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_prose("word " * 30)
    assert len(capsys.readouterr().out.splitlines()) == 1
    lines = at_width(40, monkeypatch, lambda: print_prose("word " * 30))
    assert len(lines) == 4 and max(map(len, lines)) < 40


def test_prose_is_wrapped_between_words_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown([{"name": "gsm8k", "title": "eight thousand sums for schools"}], 30, monkeypatch)
    assert ["│", "gsm8k", "│", "eight", "thousand", "│"] in map(str.split, lines)
    assert len(lines[-1]) == 30


def at_width(columns: int, monkeypatch: pytest.MonkeyPatch, show: Callable[[], None]) -> list[str]:
    terminal = Terminal()
    with monkeypatch.context() as here:
        here.setenv("COLUMNS", str(columns))
        here.setenv("NO_COLOR", "1")
        here.setattr(sys, "stdout", terminal)
        show()
    return terminal.getvalue().splitlines()


def test_the_benchmarks_fit_eighty_columns_in_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = at_width(80, monkeypatch, list_benchmarks)
    assert max(map(len, lines)) <= 80
    place = next(number for number, line in enumerate(lines) if line.startswith("gsm8k: "))
    assert "scorer " in lines[place + 1] and lines[place + 1].startswith("    ")
    # a paragraph has three lines on average, where a table had five
    num_benchmarks = sum(not line.startswith(" ") for line in lines)
    assert len(lines) < 4 * num_benchmarks


def test_rows_that_are_too_wide_for_a_table_are_shown_column_by_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"address": ADDRESS, "why": "sampled once more " * 4, "score": 0.25}]
    assert at_width(80, monkeypatch, lambda: print_records(rows)) == [
        "── 1",
        f"address  {ADDRESS}",
        "why      sampled once more sampled once more sampled once more sampled once",
        "         more",
        "score    0.25",
    ]


def test_a_table_is_too_wide_where_its_columns_and_frame_exceed_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # ten characters, two spaces and two lines of the frame
    found: list[bool] = []
    rows = [{"name": "0123456789"}]
    for columns in (14, 13):
        at_width(columns, monkeypatch, lambda: found.append(is_too_wide(rows)))
    assert found == [False, True]
