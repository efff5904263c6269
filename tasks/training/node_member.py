"""A process of the trainer on a node of a Ray cluster."""

from __future__ import annotations

import functools
from pathlib import Path

from tasks.engines.node_child import NodeChild
from tasks.engines.node_host import Program, Seat
from tasks.training.environment import member_environment


class NodeMember:
    """Process `rank` of `num_processes`, on a node, and the pipe to it.

    It takes turns with an engine on the GPUs of a `seat`; without a seat, it waits for a node with
    room. It has its own log beside `log_file`.
    """

    def __init__(
        self,
        module: str,
        rank: int,
        num_processes: int,
        log_file: Path,
        device: str,
        threads: int,
        seat: Seat | None,
    ) -> None:
        gpus = None
        needs: dict[str, float] = {"num_cpus": 0}
        if seat is not None:
            gpus = seat.gpus
        elif device == "cuda":
            needs = {"num_gpus": 1, "num_cpus": 1}
        else:
            needs = {"num_cpus": threads}
        program = Program(
            name=f"trainer process {rank}",
            module=module,
            environment=functools.partial(
                member_environment, device, threads, num_processes, gpus=gpus
            ),
        )
        own_log = log_file.with_stem(f"{log_file.stem}-{rank}")
        self._child = NodeChild(program, own_log, needs, seat)
        self.pipe = self._child.pipe
        self.log_file = own_log

    def pids(self) -> tuple[str, int, int]:
        """The node's name, the actor's process id and the trainer's."""
        return self._child.pids()

    def ended(self, out: Path) -> str:
        """How it ended, once its pipe has ended."""
        cause = self._child.ended()
        if self._child.is_lost:
            return f"the loss of its node or actor ({cause})"
        return cause

    def close(self, patience_s: float) -> None:
        """End the process; kill it if it is not idle and does not end in time."""
        self._child.close(patience_s)
