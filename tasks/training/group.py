"""The trainer's processes, as the flow sees them.

They start together, train job after job, and end with the flow.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tasks.engines.child import PROJECT
from tasks.engines.gpus import devices
from tasks.processes.child_process import parent_variables
from tasks.training.grpo import UpdateJob, UpdateResult

END_S = 10.0
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK")


class TrainerDied(RuntimeError):
    """A process of the trainer ended without a result; nothing was published."""


class Group:
    """`num_processes` processes, each with a pipe, and one log.

    They start at the first job, or earlier by `start`.
    """

    program = "tasks.training.member"

    def __init__(self, log_file: Path, num_processes: int, device: str, threads: int) -> None:
        self.log_file = log_file
        self.num_processes = num_processes
        self.device = device
        self.threads = threads
        self.members: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []

    def start(self) -> None:
        """Start the processes and their imports, without waiting."""
        if self.members:
            return
        meeting = meeting_place(self.num_processes)
        for rank in range(self.num_processes):
            ours, theirs = Pipe()
            environment = inherited(os.environ) | parent_variables() | self.environment() | meeting
            if meeting:
                environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with open(self.log_file, "ab") as log, theirs:
                command = [sys.executable, "-m", self.program, str(theirs.fileno())]
                self.members.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        pass_fds=[theirs.fileno()],
                        # Ctrl-C reaches the parent only, which then closes the group
                        start_new_session=True,
                    )
                )
            self._pipes.append(ours)

    def train(self, job: UpdateJob) -> UpdateResult:
        """The first process's result, once all have theirs.

        If one fails, all end: the others would wait for it forever. Raises what
        `tasks.training.trainer.train` raises, and TrainerDied.
        """
        self.start()
        return self._call(job, job.out)

    def write_state(self, folder: Path) -> None:
        """Have the processes write the optimizer's state that the last job left in their memory.

        That job had `state_later`. Raises TrainerDied, or the error of the write; then the
        processes end and the state is lost.
        """
        if not self.members:
            raise TrainerDied(
                "the trainer's processes ended before they had written the optimizer's state"
            )
        self._call(folder, folder)

    def _call(self, request: UpdateJob | Path, out: Path) -> Any:
        """Send a request to all processes; return the first one's result.

        `out` is where they write, for the message if one dies.
        """
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # a dead process shows when its pipe is read
                pipe.send(request)
        results: dict[Connection, Any] = {}
        try:
            while len(results) < len(self._pipes):
                for pipe in wait([pipe for pipe in self._pipes if pipe not in results]):
                    assert isinstance(pipe, Connection)
                    results[pipe] = self._result(pipe, out)
        except BaseException as problem:
            if len(self._pipes) > 1 or not isinstance(problem, Exception):
                self.close()
            raise
        return results[self._pipes[0]]

    def _result(self, pipe: Connection, out: Path) -> Any:
        try:
            result = pipe.recv()
        except (EOFError, OSError):
            died = self.members[self._pipes.index(pipe)]
            died.wait()
            self.close()
            cause = cause_of_death(died.returncode, out)
            raise TrainerDied(
                f"the trainer's process ended by {cause}; its log is {self.log_file}"
            ) from None
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        """End the processes; kill those that are computing or suspended."""
        for pipe in self._pipes:
            pipe.close()  # a process that waits for a job ends when its pipe closes
        patience_s = END_S if len(self.members) == 1 else 1.0
        for member in self.members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.wait(patience_s)
            member.kill()
            member.wait()
        self.members = []
        self._pipes = []

    def environment(self) -> dict[str, str]:
        """The environment variables of the processes.

        Expandable segments: rows differ in length, and fixed blocks freed by one would not fit the
        next. An allocator setting that the environment already has wins. TRL refuses a lone process
        that sees several GPUs.
        """
        path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        if self.device == "cpu":
            return {
                "PYTHONPATH": path,
                "ACCELERATE_USE_CPU": "true",
                "OMP_NUM_THREADS": str(self.threads),
            }
        cores = len(os.sched_getaffinity(0)) // self.num_processes
        former = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        allocator = os.environ.get("PYTORCH_ALLOC_CONF", former)
        variables = {
            "PYTHONPATH": path,
            "PYTORCH_ALLOC_CONF": allocator,
            "OMP_NUM_THREADS": str(max(cores, 1)),
        }
        if self.num_processes == 1:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices(1, 0))
        return variables


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without torchrun's variables.

    A cluster may have set them, and a lone process would then wait for others.

    >>> inherited({"WORLD_SIZE": "16", "RANK": "3", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in TORCHRUN}


def meeting_place(num_processes: int) -> dict[str, str]:
    """Where the processes of a group find each other, in torchrun's variables.

    Empty for a single process. A group is on one machine; over several, only the trainer alone can
    be launched (`tasks.training.trainer`).
    """
    if num_processes == 1:
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(num_processes),
        "LOCAL_WORLD_SIZE": str(num_processes),
    }


def cause_of_death(exit_code: int, out: Path) -> str:
    """What an exit code means, with its likely cause.

    >>> cause_of_death(-15, Path("."))
    'SIGTERM'
    """
    if exit_code >= 0:
        return f"exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    folder = next(folder for folder in (out, *out.parents) if folder.exists())
    free_mb = shutil.disk_usage(folder).free / 1e6
    hints = {
        "SIGBUS": f" (a full disk? {free_mb:.0f} MB are free)",
        "SIGKILL": " (out of memory, or killed by someone)",
    }
    return name + hints.get(name, "")
