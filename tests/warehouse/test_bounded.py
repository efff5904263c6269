"""Statements in a process of their own, which ends when its time or memory is used up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pytest

from warehouse.bounded import answer_apart
from warehouse.readonly import NotAllowed

# an hour in one call of a function, which DuckDB does not interrupt
ONE_LONG_CALL = "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))"
GIGABYTES = "select length(system.main.repeat('x', 4000000000))"


def answered(root: Path, statement: str, within_s: float = 60.0) -> list[dict[str, object]]:
    with answer_apart(root, statement, within_s, "1GB", most_bytes=2 << 30) as rows:
        return rows.read_all().to_pylist()


def test_the_rows_come_as_from_a_statement_in_this_process(tmp_path: Path) -> None:
    rows = answered(tmp_path, "select i as n, [i] as list from range(3) t(i) order by i")
    assert rows == [{"n": n, "list": [n]} for n in range(3)]
    assert answered(tmp_path, "select 1 as n where false") == []


@pytest.mark.parametrize(
    ("statement", "kind", "says"),
    [
        ("select nope", duckdb.BinderException, "nope"),
        ("select 1; select 2", NotAllowed, "give it one SELECT"),
        ("select * from read_text('/etc/hostname')", NotAllowed, "reads no files"),
        ("", ValueError, "no statement"),
    ],
)
def test_a_fault_is_told_in_its_own_kind_and_words(
    tmp_path: Path, statement: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        answered(tmp_path, statement)


def test_a_fault_after_the_first_rows_is_no_end_of_the_rows(tmp_path: Path) -> None:
    late = "select case when i = 90000 then error('late') else i end as n from range(100000) t(i)"
    with pytest.raises((ValueError, duckdb.Error), match="late"):
        answered(tmp_path, late)


def test_one_long_call_of_a_function_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"longer than 0\.2 s"):
        answered(tmp_path, ONE_LONG_CALL, within_s=0.2)


def test_a_call_cannot_allocate_more_than_the_process_may(tmp_path: Path) -> None:
    with pytest.raises((ValueError, duckdb.Error), match=r"(?i)memory"):
        answered(tmp_path, GIGABYTES)


def test_the_process_and_what_it_spilt_end_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilt = tmp_path / "temporary"
    spilt.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spilt))
    with answer_apart(tmp_path, "select i from range(10000000000) t(i)", 60.0, "1GB") as rows:
        assert rows.read_next_batch().num_rows
        assert [path.name[:13] for path in spilt.iterdir()] == ["selfplay-sql-"]
    assert list(spilt.iterdir()) == []


def test_ctrl_c_also_ends_one_long_call_in_this_process(tmp_path: Path) -> None:
    """`selfplay sql`: DuckDB does not heed an interrupt there, so the process ends."""
    script = (
        "import sys; from warehouse import readonly; readonly.STUBBORN_S = 0.2\n"
        "check = readonly._check\n"
        "readonly._check = lambda *about: (print('begins', flush=True), check(*about))\n"
        f"with readonly.answer(sys.argv[1], {ONE_LONG_CALL!r}) as rows: rows.read_all()\n"
    )
    # a shell starts what it does not wait for deaf to Ctrl-C
    deaf = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, deaf)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "begins\n"
    time.sleep(1)  # until the call has begun; before, Python itself hears Ctrl-C
    os.kill(process.pid, signal.SIGINT)
    try:
        assert process.wait(600) in (128 + signal.SIGINT, -signal.SIGINT)
    finally:
        process.kill()
