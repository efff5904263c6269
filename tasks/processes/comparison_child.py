"""A worker of `tasks.processes.comparisons`.

Run as `python -m tasks.processes.comparison_child FILE_DESCRIPTOR`.
"""

import os
import resource
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tasks.processes.child_process import die_with_parent
from warehouse.schemas import Row

MEMORY_BYTES = 4 << 30  # of addresses: an answer such as 9^9^9^9 must not fill the machine


def serve(pipe: Connection) -> None:
    """Receive `compare`, then compare pairs of task and answer until the pipe closes."""
    try:
        compare: Callable[[Row, str], Any] = pipe.recv()
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
        return
    # `compare` came with its imports; load now what they would load at the first comparison
    formulas = sys.modules.get("tasks.readers.formulas")
    if formulas:
        formulas.load()
    pipe.send(("ready", None))
    while True:
        try:
            task, answer = pipe.recv()
        except EOFError:
            return
        pipe.send(compared(compare, task, answer))


def compared(compare: Callable[[Row, str], Any], task: Row, answer: str) -> tuple[str, Any]:
    """What a comparison came to, as (kind, content).

    The kinds are "compared" with a verdict, or scores by metric; "reason" with why there is none;
    and "failed" with the traceback of a fault.
    """
    try:
        scores = compare(task, answer)
        if isinstance(scores, dict):
            return "compared", scores
        return "compared", bool(scores)
    except ValueError as problem:
        return "reason", str(problem) or type(problem).__name__
    except MemoryError:
        return "reason", "out of memory"
    except RecursionError:
        return "reason", "nested too deeply"
    except Exception:
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    serve(Connection(int(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)
