"""`selfplay sql` reads exact values from the store and writes nothing to it."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from flows.app.command import cli
from flows.runtime.store_root import store_root
from tests.support.rows import publish, row
from warehouse import export, query, readonly
from warehouse.store import Store

VALUES = """
    select
        0.1::double as share, 9007199254740993 as big, sum(i) as total, 1.10::decimal(10, 2) as price,
        12345678901234567890.5::decimal(38, 1) as long, timestamp '2026-01-02 03:04:05.000006' as at,
        date '2026-01-02' as day, interval '1 day 1500 ms' as took, map {'a': 1} as counts, {'x': [1, null]} as nested,
        'nan'::double as nan, null as nothing, '' as empty, 'a,"b"' || chr(10) || chr(27) as text, true as yes,
        '\\xAA'::blob as bytes
    from range(3) t(i)
"""  # noqa: E501
TEXT = 'a,"b"\n\x1b'


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    store = Store(tmp_path / "store")
    publish(
        store.run("mine"),
        "evaluations",
        row("evaluations", score=0.1),
        row("evaluations", score=0.2),
    )
    return store.root


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["sql", *arguments])


def refusal(*arguments: str) -> str:
    result = ask(*arguments)
    assert result.exit_code == 1, result.output
    return result.output


def test_a_pipe_gets_csv_with_exact_values_and_nested_ones_as_json() -> None:
    header, values = csv.reader(io.StringIO(ask(VALUES).stdout))
    assert dict(zip(header, values, strict=True)) == {
        "share": "0.1",
        "big": "9007199254740993",
        "total": "3",
        "price": "1.10",
        "long": "12345678901234567890.5",
        "at": "2026-01-02T03:04:05.000006",
        "day": "2026-01-02",
        "took": "P0M1DT1.5S",
        "counts": '{"a": 1}',
        "nested": '{"x": [1, null]}',
        "nan": "nan",
        "nothing": "",
        "empty": "",
        "text": TEXT,
        "yes": "true",
        "bytes": "aa",
    }


def test_csv_tells_a_null_from_an_empty_string() -> None:
    assert ask("select null as a, '' as b, ' x' as c").stdout == 'a,b,c\n,""," x"\n'


def test_json_is_one_array_of_exact_values() -> None:
    [found] = json.loads(ask("--format", "json", VALUES).stdout)
    assert found == {
        "share": 0.1,
        "big": 9007199254740993,
        "total": 3,
        "price": 1.1,
        "long": "12345678901234567890.5",
        "at": "2026-01-02T03:04:05.000006",
        "day": "2026-01-02",
        "took": "P0M1DT1.5S",
        "counts": {"a": 1},
        "nested": {"x": [1, None]},
        "nan": "nan",
        "nothing": None,
        "empty": "",
        "text": TEXT,
        "yes": True,
        "bytes": "aa",
    }
    assert (
        json.loads(ask("--format", "json", "select 1 as a from range(3)").stdout) == [{"a": 1}] * 3
    )
    assert ask("--format", "json", "select 1 as a where false").stdout == "[]\n"
    assert ask("select 1 as a where false").stdout == "a\n"


def test_a_table_shows_control_characters_and_says_what_it_leaves_out() -> None:
    shown = ask("--format", "table", "select i, chr(27) || chr(8238) as text from range(1001) t(i)")
    assert "│ 999 │ ␛� " in shown.stdout and "│ 1000" not in shown.stdout
    assert "only the first 1000 rows are shown" in shown.stderr
    assert (
        "run (2)"
        in ask(
            "--format", "table", "select * from evaluations a join evaluations b using (score)"
        ).stdout
    )


@pytest.mark.parametrize("name", ["scores.csv", "scores.json", "scores.parquet"])
def test_a_file_is_written_in_the_format_of_its_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    assert ask("select run, score from evaluations order by score", "-o", str(file)).exit_code == 0
    read = {
        "csv": lambda: list(csv.DictReader(file.open())),
        "json": lambda: json.loads(file.read_text()),
        "parquet": lambda: pq.read_table(file).to_pylist(),
    }[file.suffix[1:]]()
    assert [(found["run"], float(found["score"])) for found in read] == [
        ("mine", 0.1),
        ("mine", 0.2),
    ]
    assert list(tmp_path.glob(".scores*")) == []


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "kept.csv"
    link = tmp_path / "link.csv"
    file.write_text("before")
    link.symlink_to(file)
    assert ask("select 1 as x", "-o", str(link)).exit_code == 0
    assert link.is_symlink() and file.read_text() == "x\n1\n"


def test_what_is_no_file_is_written_to_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as thread:
        read = thread.submit(pipe.read_text)
        assert ask("select 1 as x", "-o", str(pipe)).exit_code == 0
        assert read.result() == "x\n1\n"
    assert pipe.is_fifo()


def test_parquet_keeps_types_and_goes_through_a_pipe() -> None:
    table = pq.read_table(
        io.BytesIO(
            ask("--format", "parquet", "select 1::bigint as n, {'x': [1]} as s").stdout_bytes
        )
    )
    assert table.schema.types == [pa.int64(), pa.struct({"x": pa.list_(pa.field("l", pa.int32()))})]


def test_a_failing_query_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "kept.csv"
    file.write_text("before")
    late = (
        "select cast(case when i = 50000 then 'x' else '1' end as int) as n from range(100000) t(i)"
    )
    assert "Could not convert string 'x' to INT32" in refusal(late, "-o", str(file))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["kept.csv"]
    assert file.read_text() == "before"
    assert "end the name in .csv, .json or .parquet" in refusal(
        "select 1", "-o", str(tmp_path / "scores.txt")
    )
    assert "cannot be written" in refusal("select 1", "-o", str(tmp_path / "no" / "scores.csv"))


def test_two_columns_of_one_name_are_refused_where_one_would_be_lost() -> None:
    assert "several columns are named a: rename them" in refusal(
        "--format", "json", "select 1 as a, 2 as a"
    )
    assert ask("select 1 as a, 2 as a").stdout == "a,a\n1,2\n"


def test_rows_come_while_the_query_goes_on(root: Path) -> None:
    with readonly.answer(root, "select i from range(1000000000000) t(i)") as rows:
        assert list(itertools.islice(export.csv_lines(rows), 3)) == ["i\n", "0\n", "1\n"]


@pytest.mark.parametrize(
    "statement",
    [
        "copy (select 1) to '{root}/runs/mine/evil.csv'",
        "with t as (copy (select 1) to '{root}/runs/mine/evil.csv') from t",
        "export database '{root}/runs/mine/evil'",
        "create table evil as select 1",
        "attach '{root}/runs/evil.duckdb'",
        "set enable_external_access = true",
        "install httpfs",
        "select 1; select 2",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(statement: str, root: Path) -> None:
    assert "give it one SELECT" in refusal(statement.format(root=root))
    assert list(root.rglob("*evil*")) == []


@pytest.mark.parametrize(
    "source",
    [
        "read_text('/etc/hostname')",
        "read_csv('{root}/../other.csv')",
        "glob('/etc/*')",
        "duckdb_secrets()",
    ],
)
def test_other_files_than_the_tables_are_not_read(source: str, root: Path) -> None:
    (root.parent / "other.csv").write_text("a\n1\n")
    assert "reads no files except those of the store's tables" in refusal(
        f"select * from {source.format(root=root)}"
    )


def test_a_symbolic_link_to_the_store_is_the_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.parent / "link").symlink_to(root)
    monkeypatch.setenv("SELFPLAY_STORE", str(root.parent / "link"))
    assert ask("select count(*) as n from evaluations").stdout == "n\n2\n"


def test_questions_of_every_kind_are_answered() -> None:
    for statement in (
        "show tables",
        "describe evaluations",
        "summarize evaluations",
        "from evaluations",
        "values (1)",
    ):
        assert ask(statement).exit_code == 0, ask(statement).output


@pytest.mark.parametrize("call", ["repeat('x', 4e9::bigint)", "lpad('x', 2e9::int, 'y')"])
def test_a_call_that_writes_gigabytes_is_refused(root, call):
    """A time limit cannot reach into one call of a function."""
    with (
        pytest.raises(duckdb.Error, match=f"{call[:4]}.*: at most 10,000,000"),
        readonly.answer(root, f"select {call} as text") as rows,
    ):
        rows.read_all()


def test_texts_are_still_repeated_and_filled(root):
    statement = "select repeat('ab', 2) || lpad('c', 3, '.') || rpad('d', 2, '-') as text"
    with readonly.answer(root, statement) as rows:
        assert rows.read_all().to_pylist() == [{"text": "abab..cd-"}]


def test_a_large_sort_has_a_place_to_spill_to(root: Path) -> None:
    with readonly.answer(root, "select current_setting('temp_directory') as place") as rows:
        [place] = rows.read_all()["place"].to_pylist()
        assert Path(place).is_dir()
    assert not Path(place).exists()


def test_a_mistake_is_shown_where_it_was_made(root: Path) -> None:
    statement = "select nope from evaluations"
    with (
        pytest.raises(duckdb.BinderException, match="LINE 1: select nope"),
        readonly.answer(root, statement),
    ):
        pass


def test_a_statement_may_begin_with_a_comment() -> None:
    assert ask("-- how many?\nselect 1 as n").stdout == "n\n1\n"


ENDLESS = "select count(*) from range(100000000) a, range(100) b where a.range < b.range + random()"


def when_checked(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen once a statement is known to be allowed, before it begins."""
    check = readonly._check

    def check_first(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
        check(connection, statement)
        happens()

    monkeypatch.setattr(readonly, "_check", check_first)


def test_ctrl_c_ends_a_statement_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    # a shell starts what it does not wait for deaf to it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    when_checked(monkeypatch, press.start)
    result = ask(ENDLESS)
    assert (result.exit_code, result.stdout) == (1, "")


def test_ctrl_c_just_before_a_statement_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python's signal handler does at once, and Python itself only when DuckDB returns: it
    sends the signal's number, and DuckDB forgets an interrupt of a connection that does nothing."""
    interrupted = threading.Event()

    def press() -> None:
        to_listener = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(to_listener, warn_on_full_buffer=False)
        os.write(to_listener, bytes([signal.SIGINT]))
        interrupted.wait()

    @contextlib.contextmanager
    def connect(root: Path, statement: str) -> Iterator[Any]:
        with query.connect(root, statement) as connection:
            yield Noted(connection, interrupted)

    monkeypatch.setattr(readonly, "connect", connect)
    when_checked(monkeypatch, press)
    with pytest.raises(KeyboardInterrupt), readonly.answer(store_root(), ENDLESS) as rows:
        rows.read_all()


class Noted:
    """A connection that notes an interrupt when it has been told."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, interrupted: threading.Event) -> None:
        self._connection = connection
        self._interrupted = interrupted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def interrupt(self) -> None:
        self._connection.interrupt()
        self._interrupted.set()
