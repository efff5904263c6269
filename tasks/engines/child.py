"""An engine's process, and the pipe to it.

The process has its own log file, serves many calls, and dies with its parent. `Child` is a process
on this machine, `tasks.engines.node_child` one on a node; to a pool both are an `EngineProcess`.

Messages are tuples: the kind, then its content. Who sends what, and when:

    fleet   CALL number, settings   to an engine that waits: this call has prompts, so ask for them.
                                    To an engine that asked: before its first LOT of the call.
    engine  MORE                    when it has room and no prompts of the last LOT are left, unless
                                    that was empty; then after the next CALL
    fleet   LOT number, prompts     only in answer to MORE; empty: wait for a CALL
    engine  ROWS rows, number       at any time, even for a call that is over
    engine  FAILED error, number    the call failed; others go on
    engine  FAILED error            the engine failed in a way that a new one would, too
    engine  DIED reason             the engine failed; the process ends
    fleet   END number              the call is over
    fleet   SLEEP                   no call is under way; the engine answers DONE

A CALL may come again, when prompts of a lost engine wait. If the engine does not have this call
under way, it opens the call and asks for prompts.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Protocol, cast

from tasks.engines.gpus import devices
from tasks.models.engine import EngineConfig
from tasks.processes.child_process import parent_variables

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    # the scheduler runs in the child itself: no messages between two processes
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    # a forked worker would collect no garbage, because its parent does not while it loads
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # it gives no log-probabilities after top-p, so it is of no use here
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    # GPUs are numbered as in nvidia-smi, not fastest first
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
CPU_ENVIRONMENT = {
    # else the first reply compiles a log-prob helper for many seconds
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every child binds to the same first core
}
KEY = "SELFPLAY_ENGINE_KEY"  # environment variable: the key of a connection between machines
# to an engine
CALL = "call"
LOT = "lot"
END = "end"
SLEEP = "sleep"
# from an engine
MORE = "more"
ROWS = "rows"
FAILED = "failed"
DIED = "died"
DONE = "done"
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|can't allocate memory", re.IGNORECASE)


class EngineProcess(Protocol):
    """What a pool needs from an engine's process, wherever it runs."""

    pipe: Connection
    log_file: Path
    # whether it was lost with its node rather than ending by itself
    is_lost: bool
    # whether it was given up because no node had room for it
    found_no_node: bool

    def ended(self) -> str:
        """How it ended, once its pipe has ended."""
        ...

    def close(self) -> None:
        """Close the pipe, and kill the process if it does not end by itself."""
        ...


class Child:
    """One engine process and the pipe to it."""

    is_lost = False
    found_no_node = False

    def __init__(self, config: EngineConfig, number: int, log_dir: Path):
        log_dir.mkdir(parents=True, exist_ok=True)
        self.log_file = log_dir / f"engine-{os.getpid()}-{number}.log"
        ours, theirs = Pipe()
        environment = engine_environment(config)
        if config.device != "cpu" and config.kind == "vllm":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices(config.tensor_parallel, number))
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tasks.engines.fleet_child", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches only the parent, which then closes its children
                start_new_session=True,
            )
        theirs.close()
        self.pipe: Connection = ours
        self.pipe.send(config)

    def ended(self) -> str:
        return f"process {self.process.pid} ended with status {self.process.wait()}"

    def close(self) -> None:
        self.pipe.close()  # the child ends at the end of its pipe
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # tensor-parallel workers that were still loading
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)


def connection(words: list[str]) -> Connection:
    """A child's end of its pipe. `words` are the number of its file descriptor or, if the flow is
    on another machine, the flow's host and port; the environment then has the key.

    Raises OSError if the flow does not answer.
    """
    if len(words) == 1:
        return Connection(int(words[0]))
    host, port = words
    key = bytes.fromhex(os.environ.pop(KEY))
    return cast(Connection, Client((host, int(port)), authkey=key))


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """The environment of an engine's process, except for the choice of its GPUs."""
    environment = os.environ | ENVIRONMENT | parent_variables() | {"PYTHONPATH": _python_path()}
    if config.device == "cpu":
        environment |= CPU_ENVIRONMENT | {
            "OMP_NUM_THREADS": str(config.threads),
            "CUDA_VISIBLE_DEVICES": "",
        }
    return environment


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(PROJECT), *filter(None, inherited)])
