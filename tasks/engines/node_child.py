"""An engine's process on a node of a Ray cluster, and the pipe to it.

Ray chooses a node with room, starts an actor there (`NodeHost`) and says when it is gone; the actor
starts the same process as on this machine. That connects to us, and the same messages go over the
connection. Ray makes no retries and keeps nothing: what a lost node had not sent is lost, and the
fleet asks for it again.

All GPUs of an engine are of one node: they belong to one actor.
"""

from __future__ import annotations

import contextlib
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
from tasks.engines.node_host import NodeHost
from tasks.models.engine import EngineConfig

log = logging.getLogger("selfplay")
LOOK_EVERY_S = 1.0  # whether Ray still knows the actor
TELL_EVERY_S = 60.0  # that an engine waits for a node
MOST_WAIT_S = 1800.0  # for a node with room
CLOSE_S = 10.0


class NodeChild:
    """One engine process on a node, and the pipe to it.

    A thread passes messages between the pipe and the connection, so that a fleet can wait for
    engines of nodes as for its own, also while they still wait for room.
    """

    def __init__(self, config: EngineConfig, number: int, log_dir: Path):
        self._ray = connect("engines")
        self.number = number
        # one name for each start: on nodes without a shared folder the old log is elsewhere
        self.log_file = log_dir / f"engine-{os.getpid()}-{number}.log"
        self.is_lost = False
        self._why = "it was closed"
        self._needs = _needs(config)
        key = secrets.token_hex(32)
        self._listener = Listener(("", 0), backlog=4, authkey=bytes.fromhex(key))
        host: Any = self._ray.remote(NodeHost)
        self._host = host.options(
            **self._needs,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=2,
            scheduling_strategy="SPREAD",
        ).remote(config, str(self.log_file), _own_addresses(self._ray), self._port, key)
        self._gone = self._host.wait.remote()
        self.pipe, self._theirs = Pipe()
        self.pipe.send(config)
        self._relay = threading.Thread(target=self._pass_on, name=f"engine-{number}", daemon=True)
        self._relay.start()

    @property
    def _port(self) -> int:
        return cast(tuple[str, int], self._listener.address)[1]

    def pids(self) -> tuple[str, int, int]:
        """The node's name, and the processes of the actor and of the engine."""
        return self._ray.get(self._host.pids.remote())

    def ended(self) -> str:
        self._relay.join()
        return self._why

    def close(self) -> None:
        self.pipe.close()  # the child ends at the end of its connection
        self._relay.join(timeout=CLOSE_S)
        with contextlib.suppress(Exception):  # a node that is gone needs no kill
            self._ray.wait([self._gone], timeout=0.0 if self.is_lost else CLOSE_S)
            self._ray.kill(self._host, no_restart=True)
        self._listener.close()

    def _pass_on(self) -> None:
        """Pass messages on until one side ends; then note why."""
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
        """What a process sent before it ended is still in the connection."""
        while connection.poll():
            self._theirs.send_bytes(connection.recv_bytes())

    def _accepted(self) -> Connection | None:
        """The engine's connection, once a node had room for it; None if there is none any more."""
        answered: list[Connection] = []

        def accept() -> None:
            while not answered:
                try:
                    answered.append(cast(Connection, self._listener.accept()))
                except (AuthenticationError, EOFError, ConnectionError):
                    continue  # somebody else's, or the test whether this port answers
                except OSError:  # closed
                    return

        threading.Thread(target=accept, daemon=True).start()
        begun = told = time.monotonic()
        while not answered:
            if self._is_gone(LOOK_EVERY_S) or self._is_closed():
                break
            now = time.monotonic()
            if now - told > TELL_EVERY_S and not self._is_placed():
                told = now
                log.warning(
                    "engine %d waits for a node with %s: %d s so far",
                    self.number,
                    _told(self._needs),
                    now - begun,
                )
            if now - begun > MOST_WAIT_S and not self._is_placed():
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
        """Whether the fleet has closed its end; nothing is read."""
        return self.pipe.closed

    def _is_gone(self, timeout_s: float) -> bool:
        done, _ = self._ray.wait([self._gone], timeout=timeout_s)
        return bool(done)

    def _note_the_end(self) -> None:
        """Why the engine ended: by itself, or because its actor or its node is gone.

        A call that Ray reports as "unavailable" may have a living actor: it is killed, and what it
        sends from now on is not heard.
        """
        if self.pipe.closed:
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
            # what its constructor raised says more than that the actor is dead
            self._why = " ".join(str(cause or problem).split())[:300]
            self.is_lost = True


def _needs(config: EngineConfig) -> dict[str, float]:
    """What a node must have free: GPUs of a tensor-parallel group, or the threads of a CPU."""
    if config.device == "cuda":
        return {"num_gpus": config.tensor_parallel, "num_cpus": 1}
    return {"num_cpus": config.threads * config.tensor_parallel}


def _told(needs: dict[str, float]) -> str:
    return " and ".join(f"{number:g} {name.removeprefix('num_')}" for name, number in needs.items())


def _own_addresses(ray: Any) -> list[str]:
    """The addresses at which nodes may reach this process, the likeliest first."""
    names = [ray.util.get_node_ip_address(), socket.gethostname()]
    return list(dict.fromkeys(names))
