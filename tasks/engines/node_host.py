"""A node's side of a process: the actor that starts the process there and ends with it.

Ray places and kills the actor. It holds nothing: messages go from the process directly to the flow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.engines.child import KEY, PROJECT


@dataclass(frozen=True)
class Program:
    """What a node should start."""

    name: str  # in messages, such as "engine 0"
    module: str  # run as `python -m MODULE HOST PORT`
    environment: Callable[[], dict[str, str]]  # called on the node


@dataclass(frozen=True)
class Seat:
    """Where a process of a cluster runs."""

    node: str  # Ray's id of the node
    # the GPUs that Ray gave to the process, as CUDA_VISIBLE_DEVICES names them on the node
    gpus: tuple[str, ...] = ()


class NodeHost:
    """Starts one process, which connects to the flow at an address."""

    def __init__(
        self, program: Program, log_file: str, addresses: list[str], port: int, key: str
    ) -> None:
        log = Path(log_file)
        log.parent.mkdir(parents=True, exist_ok=True)
        # Ray has set CUDA_VISIBLE_DEVICES to the GPUs that it gave to this actor
        environment = program.environment() | {KEY: key}
        host = _reachable(addresses, port)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program.module, host, str(port)],
                env=environment,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pids(self) -> tuple[str, int, int]:
        """The node's name, this actor's process id and that of the process it started."""
        return socket.gethostname(), os.getpid(), self._process.pid

    def seat(self) -> Seat:
        """The node and the GPUs of this actor."""
        import ray

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        return Seat(
            node=ray.get_runtime_context().get_node_id(),
            gpus=tuple(name for name in visible if name),
        )

    def wait(self) -> str:
        """Wait for the process to end; return how it ended."""
        status = self._process.wait()
        # tensor-parallel workers that were still loading
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        return f"process {self._process.pid} on {socket.gethostname()} ended with status {status}"


def _reachable(addresses: list[str], port: int) -> str:
    """The first of the flow's addresses that answers here.

    Raises ConnectionError if none does.
    """
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=10).close()
            return address
        except OSError as problem:
            problems.append(f"{address}:{port}: {problem}")
    raise ConnectionError(
        f"node {socket.gethostname()} cannot reach the flow ({'; '.join(problems)}): open the"
        " ports between the nodes"
    )
