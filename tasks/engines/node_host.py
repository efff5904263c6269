"""A node's side of an engine: the actor that starts the engine's process there, and ends with it.

Ray places and kills it. It holds nothing: rows go from the engine's process to the fleet itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tasks.engines.child import KEY, PROJECT, engine_environment
from tasks.models.engine import EngineConfig


class NodeHost:
    """Starts one engine's process, which connects to the fleet at an address."""

    def __init__(
        self, config: EngineConfig, log_file: str, addresses: list[str], port: int, key: str
    ) -> None:
        log = Path(log_file)
        log.parent.mkdir(parents=True, exist_ok=True)
        # Ray has set CUDA_VISIBLE_DEVICES to the GPUs that it gave to this actor
        environment = engine_environment(config) | {KEY: key}
        host = _reachable(addresses, port)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.engines.fleet_child", host, str(port)],
                env=environment,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pids(self) -> tuple[str, int, int]:
        """The node's name, this actor's process and the engine's."""
        return socket.gethostname(), os.getpid(), self._process.pid

    def wait(self) -> str:
        """How the engine's process ended, when it has."""
        status = self._process.wait()
        # tensor-parallel workers that were still loading
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        return f"process {self._process.pid} on {socket.gethostname()} ended with status {status}"


def _reachable(addresses: list[str], port: int) -> str:
    """The first of the fleet's addresses that answers here.

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
        f"node {socket.gethostname()} cannot reach the fleet ({'; '.join(problems)}): open the"
        " ports between the nodes"
    )
