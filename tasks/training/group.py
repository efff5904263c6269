"""The trainer's processes, as seen from the flow.

They start together, train one job after another, and end with the flow.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, Protocol

from tasks.engines.gpus import devices
from tasks.engines.node_host import Seat
from tasks.training.environment import member_environment
from tasks.training.grpo import UpdateJob, UpdateResult
from tasks.training.member import ADDRESS
from tasks.training.node_member import NodeMember

END_S = 10.0
Place = Literal["local", "ray"]


class TrainerDied(RuntimeError):
    """A process of the trainer ended without a result; nothing was published."""


class Member(Protocol):
    """What a group needs from one of its processes, wherever it runs."""

    pipe: Connection
    log_file: Path

    def ended(self, out: Path) -> str:
        """How it ended, once its pipe has ended; `out` is the folder it wrote to."""
        ...

    def close(self, patience_s: float) -> None:
        """End it; kill it if it is computing or suspended for longer than `patience_s`."""
        ...


class LocalMember:
    """A process on this machine, and the pipe to it."""

    def __init__(self, program: str, log_file: Path, environment: dict[str, str]) -> None:
        self.log_file = log_file
        self.pipe, theirs = Pipe()
        with open(log_file, "ab") as log, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches only the parent, which then closes the group
                start_new_session=True,
            )

    def ended(self, out: Path) -> str:
        return cause_of_death(self.process.wait(), out)

    def close(self, patience_s: float) -> None:
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.process.kill()
        self.process.wait()


class Group:
    """`num_processes` processes, each with a pipe.

    They start at the first job, or earlier with `start`. Those on this machine share one log.

    With `place="ray"` they run on the nodes of a cluster: in the `seats` of the engines, taking
    turns on their GPUs, or wherever there is room if there are no seats. The group restarts if the
    seats have changed since the last job.
    """

    program = "tasks.training.member"

    def __init__(
        self,
        log_file: Path,
        num_processes: int,
        device: str,
        threads: int,
        place: Place = "local",
        seats: Callable[[], Sequence[Seat]] | None = None,
    ) -> None:
        self.log_file = log_file
        self.num_processes = num_processes
        self.device = device
        self.threads = threads
        self.place = place
        self._seats = seats
        self._taken: list[Seat | None] = []
        self._have_met = False
        self.members: list[Member] = []

    def start(self) -> None:
        """Start the processes and their imports; on nodes, do not wait for room."""
        if self.place == "ray":
            self._start_on_nodes()
        elif not self.members:
            meeting = meeting_place(self.num_processes)
            for rank in range(self.num_processes):
                environment = member_environment(
                    self.device, self.threads, self.num_processes, self.gpus()
                )
                if meeting:
                    environment |= meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                self.members.append(LocalMember(self.program, self.log_file, environment))

    def _start_on_nodes(self) -> None:
        taken: list[Seat | None] = [None] * self.num_processes
        if self._seats is not None:
            taken = [*seats_for(self.num_processes, self.device, self._seats())]
        if self.members and taken != self._taken:
            self.close()
        if self.members:
            return
        self._taken = taken
        self._have_met = False
        for rank, seat in enumerate(taken):
            self.members.append(
                NodeMember(
                    self.program,
                    rank,
                    self.num_processes,
                    self.log_file,
                    device=self.device,
                    threads=self.threads,
                    seat=seat,
                )
            )

    def _meet(self, out: Path) -> None:
        """Tell processes on nodes where to meet, once all have started."""
        if self._have_met or self.place == "local" or self.num_processes == 1:
            return
        for member in self.members:
            with contextlib.suppress(OSError):  # as in `_call`
                member.pipe.send(ADDRESS)
        addresses = [self._result(member, out) for member in self.members]
        host, port = addresses[0]
        for rank, member in enumerate(self.members):
            meeting = torchrun_variables(host, port, self.num_processes, local_processes=1)
            with contextlib.suppress(OSError):  # as in `_call`
                # each sees only its own GPU, so it is the first on its node
                member.pipe.send(meeting | {"RANK": str(rank), "LOCAL_RANK": "0"})
        self._have_met = True

    def train(self, job: UpdateJob) -> UpdateResult:
        """Train; return the first process's result once all processes have finished.

        If one fails, all end: the others would wait for it forever. Raises what
        `tasks.training.trainer.train` raises, and TrainerDied.
        """
        self.start()
        return self._call(job, job.out)

    def write_state(self, folder: Path) -> None:
        """Have the processes write the optimizer state that the last job left in their memory.

        That job must have had `state_later`. Raises TrainerDied, or the error of the write; then
        the processes end and the state is lost.
        """
        if not self.members:
            raise TrainerDied(
                "the trainer's processes ended before they had written the optimizer's state"
            )
        self._call(folder, folder)

    def _call(self, request: UpdateJob | Path, out: Path) -> Any:
        """Send a request to all processes; return the first one's result.

        `out` is the folder they write to, for the error message if one dies.
        """
        members = {member.pipe: member for member in self.members}
        results: dict[Connection, Any] = {}
        try:
            self._meet(out)
            for pipe in members:
                with contextlib.suppress(OSError):  # reading the pipe will reveal a dead process
                    pipe.send(request)
            while len(results) < len(members):
                for pipe in wait([pipe for pipe in members if pipe not in results]):
                    assert isinstance(pipe, Connection)
                    results[pipe] = self._result(members[pipe], out)
        except BaseException as problem:
            if len(members) > 1 or not isinstance(problem, Exception):
                self.close()
            raise
        return results[next(iter(members))]

    def _result(self, member: Member, out: Path) -> Any:
        try:
            result = member.pipe.recv()
        except (EOFError, OSError):
            raise self._death(member, out) from None
        if isinstance(result, BaseException):
            ended = self._ended_beside(member)
            if ended is not None:
                raise self._death(ended, out) from result
            raise result
        return result

    def _ended_beside(self, member: Member) -> Member | None:
        """Another process that has ended, since this one's failure may only be a consequence.

        The end of a process on a node is known a moment later. Waits until all others have
        answered, but no longer than `END_S`: they may be waiting for the one that failed.
        """
        others = {other.pipe: other for other in self.members if other is not member}
        until = time.monotonic() + END_S
        while others and time.monotonic() < until:
            for pipe in wait(list(others), timeout=until - time.monotonic()):
                assert isinstance(pipe, Connection)
                other = others.pop(pipe)
                try:
                    pipe.recv()
                except (EOFError, OSError):
                    return other
        return None

    def _death(self, member: Member, out: Path) -> TrainerDied:
        """End all processes; return the error for the one that has ended."""
        cause = member.ended(out)
        self.close()
        return TrainerDied(f"the trainer's process ended by {cause}; its log is {member.log_file}")

    def close(self) -> None:
        """End the processes; kill those that are computing or suspended."""
        for member in self.members:
            member.pipe.close()  # a process that waits for a job ends when its pipe closes
        patience_s = END_S if len(self.members) == 1 else 1.0
        for member in self.members:
            member.close(patience_s)
        self.members = []

    def gpus(self) -> list[str] | None:
        """The GPUs that a process on this machine may see; None if it may see all.

        TRL refuses a single process that sees several GPUs.
        """
        if self.device == "cuda" and self.num_processes == 1:
            return devices(1, 0)
        return None


def seats_for(num_processes: int, device: str, seats: Sequence[Seat]) -> list[Seat]:
    """The seat of each process: its own GPU, or a node with CPUs, which processes may share.

    Raises ValueError for too few GPUs.

    >>> a, b = Seat("a", ("0", "1")), Seat("b", ("0",))
    >>> [(seat.node, *seat.gpus) for seat in seats_for(3, "cuda", [a, b])]
    [('a', '0'), ('a', '1'), ('b', '0')]
    >>> [seat.node for seat in seats_for(3, "cpu", [a, b])]
    ['a', 'b', 'a']
    """
    if device == "cpu":
        return [Seat(seats[rank % len(seats)].node) for rank in range(num_processes)]
    own = [Seat(seat.node, (gpu,)) for seat in seats for gpu in seat.gpus]
    if len(own) < num_processes:
        raise ValueError(
            f"trainer_processes={num_processes} take turns with the engines on their GPUs, and"
            f" these have {len(own)}: raise num_engines, or lower trainer_processes"
        )
    return own[:num_processes]


def meeting_place(num_processes: int) -> dict[str, str]:
    """Where the processes on this machine meet, as torchrun's variables.

    Empty for a single process.
    """
    if num_processes == 1:
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return torchrun_variables("127.0.0.1", port, num_processes, local_processes=num_processes)


def torchrun_variables(
    host: str, port: int, num_processes: int, local_processes: int
) -> dict[str, str]:
    """The variables that torchrun gives every process: the address of the first, the number of
    processes in total, and the number on each machine."""
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(num_processes),
        "LOCAL_WORLD_SIZE": str(local_processes),
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
