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

MEMORY_BYTES = 4 << 30  # address space: an answer such as 9^9^9^9 must not fill the machine


def serve(pipe: Connection) -> None:
    """Receive `compare`, then compare pairs of task and answer until the pipe closes. Another
    `compare` may arrive in between."""
    compare: Callable[[Row, str], Any] | None = None
    while True:
        try:
            received = pipe.recv()
        except EOFError:
            return
        except Exception:
            pipe.send(("failed", traceback.format_exc()))
            return
        if callable(received):
            compare = received
            load_what_it_needs()
            pipe.send(("ready", None))
        else:
            assert compare is not None
            pipe.send(compared(compare, *received))


def load_what_it_needs() -> None:
    """Load now what the rule's modules would load at the first comparison."""
    formulas = sys.modules.get("tasks.readers.formulas")
    if formulas:
        formulas.load()


def compared(compare: Callable[[Row, str], Any], task: Row, answer: str) -> tuple[str, Any]:
    """The outcome of a comparison, as (kind, content).

    The kinds are "compared", with a verdict or scores by metric; "reason", with the reason why
    there are none; and "failed", with the traceback of a bug.
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
