"""Run a user's SQL over the views: it may read published tables and do nothing else.

DuckDB's own settings do half of this. Without external access, it opens only files below
`allowed_directories`, but it may still write there with `copy ... to`, even inside a `with`. So a
statement must first bind as the argument of DuckDB's table function `query`, which accepts a single
SELECT and refuses everything that writes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from warehouse.query import as_pattern, connect

BATCH_ROWS = 10_000
INTERRUPT_EVERY_S = 0.05
STUBBORN_S = 5.0  # after Ctrl-C: if DuckDB still runs by then, it is inside one long function call
ONLY_READS = (
    "`selfplay sql` reads the tables of runs: give it one SELECT (or DESCRIBE, SHOW, SUMMARIZE)"
    " that neither writes nor changes settings. To save the result, use -o FILE"
)
# the word that we put before the user's statement, and the mark in the line below
EXPLAINED = re.compile(r"(LINE 1: )explain (.*\n) {8}( *\^)")
LONGEST_TEXT = 10_000_000
# DuckDB can interrupt a statement only between two function calls, never within one: these could
# write gigabytes in a single call, past any time or memory limit
LONG_TEXTS = {
    "repeat(value, times)": "times",
    "lpad(value, width, filling)": "width",
    "rpad(value, width, filling)": "width",
}
NO_FILES = "`selfplay sql` reads no files except those of the store's tables"


class NotAllowed(ValueError):
    """A statement that would write, change settings, or read other files than published tables."""


@contextlib.contextmanager
def answer(
    root: Path | str, statement: str, within_s: float | None = None, memory_limit: str | None = None
) -> Iterator[pa.RecordBatchReader]:
    """Yield the result of a statement, a few thousand rows at a time.

    What exceeds `memory_limit` spills to disk. Ctrl-C ends the statement. Raises NotAllowed for a
    statement that does more than read tables, ValueError for an empty one or after `within_s`
    seconds, duckdb.Error on bad SQL.
    """
    with (
        tempfile.TemporaryDirectory(prefix="selfplay-sql-") as scratch,
        connect(root, statement) as connection,
    ):
        if memory_limit:
            connection.execute(f"set memory_limit = {_quoted(memory_limit)}")
        _lock(connection, Path(root).resolve() / "runs", scratch)
        with _ended(connection, within_s), _interruptible(connection, scratch), _explained():
            _check(connection, statement)
            rows = connection.sql(statement).to_arrow_reader(BATCH_ROWS)
            try:
                yield rows
            finally:
                connection.interrupt()  # ends a query whose rows are not all read
                rows.close()


def _lock(connection: duckdb.DuckDBPyConnection, runs: Path, scratch: str) -> None:
    """From now on the connection may only read below `runs` and spill large sorts to `scratch`."""
    _bound_texts(connection)
    connection.execute(f"set temp_directory = {_quoted(scratch)}")
    # DuckDB checks names of both forms
    below = ", ".join(_quoted(f"{path}/") for path in (runs, as_pattern(runs)))
    connection.execute(f"set allowed_directories = [{below}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _bound_texts(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse calls that would write a very long text, by macros that shadow the functions."""
    for call, length in LONG_TEXTS.items():
        name = call.partition("(")[0]
        told = _quoted(f"{name}: at most {LONGEST_TEXT:,}")
        # The check is inside the argument. Around the call it would come too late, because DuckDB
        # evaluates a call with constant arguments while it plans.
        bounded = f"case when {length} > {LONGEST_TEXT} then error({told}) else {length} end"
        bounded_call = call.replace(length, bounded)
        connection.execute(f"create or replace temp macro {call} as system.main.{bounded_call}")


def _check(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    if not connection.extract_statements(statement):
        raise ValueError("there is no statement to execute")
    try:
        connection.execute(f"explain from query({_quoted(statement)})")
    except duckdb.Error as problem:
        told = str(problem)
        if "single SELECT" in told or "must be at the top level" in told:
            raise NotAllowed(ONLY_READS) from None
        try:
            # raises an error at the user's own position in the statement
            connection.execute(f"explain {statement}")
        except duckdb.Error as known:
            raise type(known)(EXPLAINED.sub(r"\1\2\3", str(known))) from None
        raise NotAllowed(told.partition("\n\nLINE ")[0]) from None


def out_of_time(within_s: float) -> ValueError:
    """The error of a statement that was ended after `within_s` seconds."""
    return ValueError(f"the statement took longer than {within_s:g} s and was ended")


@contextlib.contextmanager
def _ended(connection: duckdb.DuckDBPyConnection, within_s: float | None) -> Iterator[None]:
    """Interrupt a statement that takes longer than `within_s`; raises ValueError then."""
    late = threading.Event()

    def end() -> None:
        late.set()
        connection.interrupt()

    timer = threading.Timer(within_s or 0, end)
    if within_s is not None:
        timer.start()
    try:
        yield
    except Exception:
        if late.is_set() and within_s is not None:
            raise out_of_time(within_s) from None
        raise
    finally:
        timer.cancel()


@contextlib.contextmanager
def _interruptible(connection: duckdb.DuckDBPyConnection, scratch: str) -> Iterator[None]:
    """Let Ctrl-C end a statement.

    While DuckDB computes, Python runs no signal handler, but it writes the signal's number to a
    socket. If the statement has not ended within `STUBBORN_S`, the process does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)
    pressed = threading.Event()
    ended = threading.Event()

    def listen() -> None:
        while numbers := heard.recv(1):
            if numbers[0] == signal.SIGINT:
                pressed.set()
                give_up = time.monotonic() + STUBBORN_S
                # repeatedly, as DuckDB forgets an interrupt that comes before a statement begins
                while not ended.is_set():
                    connection.interrupt()
                    ended.wait(INTERRUPT_EVERY_S)
                    if time.monotonic() > give_up:
                        shutil.rmtree(scratch, ignore_errors=True)
                        os._exit(128 + signal.SIGINT)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    except Exception:
        if not pressed.is_set():
            raise
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        told.close()
        listener.join()
        heard.close()
    if pressed.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except duckdb.PermissionException as problem:
        raise NotAllowed(f"{NO_FILES}: {str(problem).partition(' - ')[0]}") from None
    except OSError as problem:
        if problem.errno is not None:
            raise
        raise ValueError(str(problem)) from None  # how Arrow reports a value that DuckDB rejects


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
