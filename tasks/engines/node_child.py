"""A process on a node of a Ray cluster, an engine's or one of the trainer's, and the pipe to it.

Ray chooses a node with room, starts an actor there (`NodeHost`) and reports when it is gone; the
actor starts the same process as on this machine. The process connects to us, and the same messages
go over the connection. Ray retries nothing and keeps nothing: what a lost node had not sent is
lost, and the fleet, or the next update, asks for it again.

All GPUs of an engine are on one node, because they belong to one actor.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import socket
import threading
import time
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, cast

from corpus_prep.cluster import connect
from tasks.engines.child import engine_environment
from tasks.engines.node_folders import send_folders
from tasks.engines.node_host import NodeHost, Program, Seat
from tasks.models.engine import EngineConfig

log = logging.getLogger("selfplay")
LOOK_EVERY_S = 1.0  # between checks whether Ray still knows the actor
TELL_EVERY_S = 60.0  # between messages that an engine waits for a node
MOST_WAIT_S = 1800.0  # longest wait for a node with room
CLOSE_S = 10.0


class NodeChild:
    """One process on a node, and the pipe to it.

    A thread passes messages between the pipe and the connection, so a caller can wait for processes
    on nodes as it does for local ones, even before a node has room for them.

    `needs` are the resources that a node must have free, under Ray's names. At a `seat`, nothing
    needs to be free: the process takes turns with the one that holds the seat.
    """

    def __init__(
        self, program: Program, log_file: Path, needs: dict[str, float], seat: Seat | None = None
    ):
        self._ray = connect(program.name)
        self._name = program.name
        self.log_file = log_file
        self.is_lost = False
        self.found_no_node = False
        self._is_over = False
        self._why = "it was closed"
        self._needs = needs
        key = secrets.token_hex(32)
        self._listener = Listener(("", 0), backlog=4, authkey=bytes.fromhex(key))
        host: Any = self._ray.remote(NodeHost)
        self._host = host.options(
            **self._needs,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=2,
            scheduling_strategy=_at(seat),
        ).remote(program, str(self.log_file), _own_addresses(self._ray), self._port, key)
        self._gone = self._host.wait.remote()
        self.pipe, self._theirs = Pipe()
        self._relay = threading.Thread(target=self._pass_on, name=program.name, daemon=True)
        self._relay.start()

    @classmethod
    def of_engine(cls, config: EngineConfig, number: int, log_dir: Path) -> NodeChild:
        """The process of an engine; its configuration is the first message."""
        program = Program(
            name=f"engine {number}",
            module="tasks.engines.fleet_child",
            environment=functools.partial(engine_environment, config),
        )
        # each start appends to it; on a node without the flow's folders it is a new file
        log_file = log_dir / f"engine-{os.getpid()}-{number}.log"
        child = cls(program, log_file, _needs(config))
        child.pipe.send(config)
        return child

    @property
    def _port(self) -> int:
        return cast(tuple[str, int], self._listener.address)[1]

    def pids(self) -> tuple[str, int, int]:
        """The node's name, the actor's process id and that of the process it started."""
        return self._ray.get(self._host.pids.remote())

    def seat(self) -> Seat | None:
        """Where it runs, once a node has had room for it; None if it has ended."""
        answer = self._host.seat.remote()
        while self._relay.is_alive():
            done, _ = self._ray.wait([answer], timeout=LOOK_EVERY_S)
            if done:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    return self._ray.get(answer)
                self._relay.join()
        return None

    def ended(self) -> str:
        self._relay.join()
        return self._why

    def close(self, patience_s: float = CLOSE_S) -> None:
        self.pipe.close()  # the child ends at the end of its connection
        self._relay.join(timeout=CLOSE_S)
        with contextlib.suppress(Exception):  # a node that is gone needs no kill
            self._ray.wait([self._gone], timeout=0.0 if self.is_lost else patience_s)
            self._ray.kill(self._host, no_restart=True)
        self._stop_listening()

    def _stop_listening(self) -> None:
        """Close the port. A thread that waits for connections keeps it open until one comes."""
        self._is_over = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), timeout=CLOSE_S).close()
        self._listener.close()

    def _pass_on(self) -> None:
        """Pass messages on until one side ends; then record why."""
        connection = None
        try:
            connection = self._accepted()
            while connection is not None:
                for ready in wait([self._theirs, connection], timeout=LOOK_EVERY_S):
                    if ready is connection:
                        self._theirs.send_bytes(connection.recv_bytes())
                    else:
                        connection.send_bytes(self._theirs.recv_bytes())
                if self._is_gone(0.0):
                    self._pass_on_the_rest(connection)
                    break
        except (EOFError, OSError):
            pass
        finally:
            self._note_the_end()
            if connection is not None:
                connection.close()
            self._theirs.close()

    def _pass_on_the_rest(self, connection: Connection) -> None:
        """Pass on what the process sent before it ended: it is still in the connection."""
        while connection.poll():
            self._theirs.send_bytes(connection.recv_bytes())

    def _accepted(self) -> Connection | None:
        """The process's connection, once a node has had room for it; None if it is gone."""
        answered: list[Connection] = []

        def accept() -> None:
            while not self._is_over:
                try:
                    connection = cast(Connection, self._listener.accept())
                except (AuthenticationError, EOFError, ConnectionError):
                    continue  # another process, or the test whether this port answers
                except OSError:  # closed
                    return
                if answered:  # the process's further connections ask for folders
                    threading.Thread(target=send_folders, args=(connection,), daemon=True).start()
                else:
                    answered.append(connection)

        threading.Thread(target=accept, daemon=True).start()
        begun = told = time.monotonic()
        while not answered:
            if self._is_gone(LOOK_EVERY_S) or self._is_closed():
                break
            now = time.monotonic()
            if now - told > TELL_EVERY_S and not self._is_placed():
                told = now
                log.warning(
                    "%s waits for a node with %s: %d s so far",
                    self._name,
                    _told(self._needs),
                    now - begun,
                )
            if now - begun > MOST_WAIT_S and not self._is_placed():
                self.found_no_node = True
                self._why = (
                    f"no node had {_told(self._needs)} for {MOST_WAIT_S / 60:.0f} minutes: `ray"
                    " status` shows what is free"
                )
                break
        return answered[0] if answered else None

    def _is_placed(self) -> bool:
        done, _ = self._ray.wait([self._host.pids.remote()], timeout=LOOK_EVERY_S)
        return bool(done)

    def _is_closed(self) -> bool:
        """Whether the caller has closed its end; nothing is read."""
        return self.pipe.closed

    def _is_gone(self, timeout_s: float) -> bool:
        done, _ = self._ray.wait([self._gone], timeout=timeout_s)
        return bool(done)

    def _note_the_end(self) -> None:
        """Record why the process ended: by itself, or because its actor or its node is gone.

        The actor of a call that Ray reports as "unavailable" may be alive: it is killed, and what
        it sends from now on is ignored.
        """
        if self.pipe.closed or self.found_no_node:
            return
        # the connection may end a moment before Ray learns why
        if not self._is_gone(CLOSE_S):
            self.is_lost = True
            self._why = "its connection was lost"
            return
        try:
            self._why = self._ray.get(self._gone)
        except self._ray.exceptions.RayError as problem:
            cause = getattr(problem, "cause", None)
            # what the actor's constructor raised says more than that the actor is dead
            self._why = " ".join(str(cause or problem).split())[:300]
            self.is_lost = True


def _at(seat: Seat | None) -> Any:
    """Ray's scheduling strategy: spread over the nodes, or at a seat."""
    if seat is None:
        return "SPREAD"
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(seat.node, soft=False)


def _needs(config: EngineConfig) -> dict[str, float]:
    """What a node must have free: the GPUs of a tensor-parallel group, or CPU threads."""
    if config.device == "cuda":
        return {"num_gpus": config.tensor_parallel, "num_cpus": 1}
    return {"num_cpus": config.threads * config.tensor_parallel}


def _told(needs: dict[str, float]) -> str:
    return " and ".join(f"{number:g} {name.removeprefix('num_')}" for name, number in needs.items())


def _own_addresses(ray: Any) -> list[str]:
    """The addresses at which nodes may reach this process, likeliest first."""
    names = [ray.util.get_node_ip_address(), socket.gethostname()]
    return list(dict.fromkeys(names))
