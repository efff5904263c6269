"""A process of the trainer: `python -m tasks.training.member FILE_DESCRIPTOR`, or `HOST PORT` of
the flow if it is on another machine; the environment then has the key of the connection.

It receives jobs and returns results through a pipe. If it receives a folder instead of a job, it
writes the optimizer state that the last job left in memory to that folder.

A process on a node, once started, is first asked for an address at which others can meet it: a port
that was free before the imports might be taken after them. Then it receives torchrun's variables, a
dict.

Between jobs the GPU holds only what CUDA and NCCL keep: weights and moments wait in host memory.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.engines.child import connection
from tasks.processes.child_process import die_with_parent, leave
from tasks.processes.imports import leave_out

ADDRESS = "address"  # a request


def serve(pipe: Connection) -> None:
    """Train the jobs that arrive, until the pipe closes."""
    die_with_parent()
    # halves the time to import TRL; nothing is generated or clustered
    leave_out("vllm", "sklearn", "scipy")
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("selfplay").setLevel(logging.INFO)
    import torch

    from tasks.training.kept_state import write
    from tasks.training.trainer import train

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):  # the flow has closed the pipe, or its machine is gone
            return
        if request == ADDRESS:
            pipe.send(_free_address(pipe))
            continue
        if isinstance(request, dict):
            os.environ.update(request)
            continue
        result: Any = None
        try:
            if isinstance(request, Path):
                write(request)
            else:
                result = train(request)
        except Exception as problem:
            traceback.print_exc()
            result = _sendable(problem)
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        sys.stdout.flush()
        pipe.send(result)


def _free_address(pipe: Connection) -> tuple[str, int]:
    """The address from which this node reaches the flow, and a free port at that address."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as connection:
        host = connection.getsockname()[0]
    with socket.socket() as free:
        free.bind((host, 0))
        return host, free.getsockname()[1]


def _sendable(problem: Exception) -> Exception:
    """The exception without its references to the update, or its text if it cannot be pickled."""
    try:
        return pickle.loads(pickle.dumps(problem))
    except Exception:
        return RuntimeError(repr(problem))


if __name__ == "__main__":
    serve(connection(sys.argv[1:]))
    leave(0)
