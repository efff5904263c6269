"""Run a user's SQL for a server, in a separate process.

DuckDB can interrupt a statement only between two function calls, never within one, and what a
function writes does not count towards its memory limit: a single call of `replace(a, 'x', b)` may
write terabytes. So the process ends itself when its time is up, and the operating system limits its
memory.

    with answer_apart(root, statement, within_s=60.0, memory_limit="2GB") as rows:
        ...
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import duckdb
import pyarrow as pa

from warehouse.readonly import NotAllowed, answer, out_of_time

GRACE_S = 2.0  # time for DuckDB to react to an interrupt before its process exits
MOST_BYTES = 4 << 30  # that the process may allocate: DuckDB's limit, and what it does not count
TOLD = 3  # exit status of a process that has reported an error
LATE = 4  # exit status of a process that ended itself because its time was up
KINDS = {kind.__name__: kind for kind in (ValueError, NotAllowed)}


@contextlib.contextmanager
def answer_apart(
    root: Path | str,
    statement: str,
    within_s: float,
    memory_limit: str,
    most_bytes: int = MOST_BYTES,
) -> Iterator[pa.RecordBatchReader]:
    """Yield the result of a statement from a process that ends with the block.

    It is like `readonly.answer`. Raises NotAllowed for a statement that does more than read tables,
    ValueError for an empty one, after `within_s` seconds or if it needs more than `most_bytes`,
    duckdb.Error on bad SQL.
    """
    request = {
        "root": str(root),
        "statement": statement,
        "within_s": within_s,
        "memory_limit": memory_limit,
        "most_bytes": most_bytes,
    }
    with (
        tempfile.TemporaryFile() as fault,
        # what the process spills is removed here: it may be killed before it can do so itself
        tempfile.TemporaryDirectory(prefix="selfplay-sql-") as scratch,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "warehouse.bounded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=fault,
            env={**os.environ, "TMPDIR": scratch},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps(request).encode())
            try:
                stream = pa.ipc.open_stream(process.stdout)
            except pa.ArrowInvalid:  # nothing was sent
                raise _fault(process, fault, within_s, most_bytes) from None
            batches = _batches(stream, process, fault, within_s, most_bytes)
            yield pa.RecordBatchReader.from_batches(stream.schema, batches)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _batches(
    stream: pa.RecordBatchReader,
    process: subprocess.Popen[bytes],
    fault: IO[bytes],
    within_s: float,
    most_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that the process sends. Raises its error if it ends too early."""
    try:
        yield from stream
    except (pa.ArrowInvalid, OSError):  # it ended in the middle of a batch
        raise _fault(process, fault, within_s, most_bytes) from None
    if process.wait():
        raise _fault(process, fault, within_s, most_bytes)


def _fault(
    process: subprocess.Popen[bytes], fault: IO[bytes], within_s: float, most_bytes: int
) -> Exception:
    """The error that ended a process: the one that it reported, or else what its exit suggests."""
    status = process.wait()
    if status == LATE:
        return out_of_time(within_s)
    fault.seek(0)
    words = fault.read().decode(errors="replace")
    if status == TOLD:
        told = json.loads(words)
        kind = KINDS.get(told["kind"]) or getattr(duckdb, told["kind"], duckdb.Error)
        return kind(told["text"])
    gigabytes = most_bytes / (1 << 30)
    last = words.strip().splitlines()[-1:]
    return ValueError(
        f"the process that ran the statement ended (status {status}). It may have needed more than"
        f" {gigabytes:.0f} GB of memory. {' '.join(last)}".strip()
    )


def _main() -> None:
    """Answer the request on stdin: rows as Arrow on stdout, an error as JSON on stderr."""
    request = json.load(sys.stdin)
    most_bytes = request["most_bytes"]
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    out_of_grace = threading.Timer(request["within_s"] + GRACE_S, os._exit, (LATE,))
    out_of_grace.daemon = True
    out_of_grace.start()
    try:
        with answer(
            request["root"], request["statement"], request["within_s"], request["memory_limit"]
        ) as rows:
            with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
            sys.stdout.buffer.flush()
    except (ValueError, duckdb.Error) as fault:
        told = {"kind": type(fault).__name__, "text": str(fault)}
        print(json.dumps(told), file=sys.stderr, flush=True)
        os._exit(TOLD)
    except MemoryError:
        told = {"kind": "ValueError", "text": _too_large(most_bytes)}
        print(json.dumps(told), file=sys.stderr, flush=True)
        os._exit(TOLD)


def _too_large(most_bytes: int) -> str:
    return f"the statement needs more than {most_bytes / (1 << 30):.0f} GB of memory"


if __name__ == "__main__":
    _main()
