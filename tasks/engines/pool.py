"""The engines of a fleet.

The pool decides which calls each engine is told of, which prompts it gets, and what happens if it
fails.
"""

import contextlib
import copy
import logging
from pathlib import Path
from typing import Any

from tasks.engines.call_queue import ROLL_OUT, Call, CallQueue
from tasks.engines.child import (
    CALL,
    DIED,
    DONE,
    END,
    FAILED,
    LOT,
    MORE,
    OUT_OF_MEMORY,
    ROWS,
    SLEEP,
    Child,
    EngineProcess,
)
from tasks.engines.node_host import Seat
from tasks.models.engine import EngineConfig, EngineDied

log = logging.getLogger("selfplay")


class Pool:
    """Passes prompts of the calls under way to engines that ask for them, and rows to their calls.

    Used by one thread at a time.
    """

    def __init__(
        self, config: EngineConfig, num_engines: int, log_dir: Path, first: int, queue: CallQueue
    ):
        self.config = config
        self.log_dir = log_dir
        self.queue = queue
        self.numbers = range(first, first + num_engines)
        self.children: dict[int, EngineProcess] = {}
        # engines that have asked for prompts since the first call under way began
        self.awake: set[int] = set()
        self._knows: dict[int, set[int]] = {}  # the calls that each engine was told of
        self._idle: set[int] = set()  # engines without prompts that wait to be told of a call
        self._fruitful: set[int] = set()  # engines that have sent rows since they were started

    def start(self) -> None:
        """Start the processes of engines that have none, without waiting for them to load."""
        for number in self.numbers:
            if number not in self.children:
                self._launch(number)

    def announce(self, call: Call) -> None:
        """Tell idle engines about a call; the others learn of it when they ask for more prompts."""
        self.start()
        for number in sorted(self._idle):
            self._tell(number, call)

    def forget(self, call: Call) -> None:
        """End what engines still do for a call that is over."""
        for number in [number for number, calls in self._knows.items() if call.number in calls]:
            if call.missing and call.settings["work"] != ROLL_OUT:
                self._close(number)  # other work cannot be interrupted, and its caller is gone
            else:
                self._knows[number].remove(call.number)
                self._send(number, END, call.number)

    def hear(self, number: int) -> bool:
        """Act on an engine's message; return whether it matters to callers: a row or an error."""
        kind, *content = self._receive(number)
        self._act(number, kind, *content)
        return kind != MORE

    def seats(self) -> list[Seat]:
        """Where the engines run on the nodes of a cluster; they are started if necessary.

        Raises EngineDied if no node had room for one.
        """
        self.start()
        seats = []
        for number in self.numbers:
            seat = self._seat(number)
            if seat is None:  # it was lost after the last call
                self._restart(number, self.children[number].ended(), again=False)
                seat = self._seat(number)
            if seat is None:
                raise EngineDied(f"engine {number} ended: {self.children[number].ended()}")
            seats.append(seat)
        return seats

    def _seat(self, number: int) -> Seat | None:
        from tasks.engines.node_child import NodeChild

        child = self.children[number]
        assert isinstance(child, NodeChild)
        return child.seat()

    def sleep(self) -> None:
        """Release the accelerators' memory; no call may be under way."""
        for number in self.children:
            self._send(number, SLEEP)
        for number in list(self.children):
            kind, *content = self._receive(number)
            # messages sent before it received SLEEP; the failure of one call has its number
            while kind in (MORE, ROWS) or (kind == FAILED and len(content) > 1):
                if kind == MORE:
                    self._give(number)
                kind, *content = self._receive(number)
            if kind != DONE:  # it is ending; its memory must be free before an update begins
                self._close(number)

    def fail(self, error: Exception) -> None:
        """Fail all calls under way."""
        for call in self.queue.under_way:
            call.error = call.error or copy.copy(error)

    def close(self) -> None:
        """End the processes of all engines, which takes as long as the slowest of them."""
        for child in self.children.values():
            child.pipe.close()  # an engine ends at the end of its pipe
        for number in list(self.children):
            self._close(number)

    def _act(self, number: int, kind: str, content: Any = None, of: int | None = None) -> None:
        """Act on an engine's message; `of` is the number of the call that it is about."""
        call = self.queue.find(of)
        if kind == MORE:
            self._give(number)
        elif kind == ROWS:
            self._fruitful.add(number)
            if call is not None:
                call.take(content)
        elif kind == FAILED and of is not None:
            if call is not None:
                call.error = content
        elif kind == FAILED:
            self.fail(content)
            self.close()
        else:
            self._revive(number, content)

    def _give(self, number: int) -> None:
        """Answer an engine that asks for prompts, with those of the first call that has any."""
        for call in self.queue.under_way:
            lot = call.lot(number) if call.error is None else []
            if lot:
                self._tell(number, call)
                self._send(number, LOT, call.number, lot)
                return
        self._idle.add(number)
        self._send(number, LOT, None, [])

    def _tell(self, number: int, call: Call) -> None:
        self._idle.discard(number)
        if call.number not in self._knows[number]:
            self._knows[number].add(call.number)
            self._send(number, CALL, call.number, call.settings)

    def _send(self, number: int, *message: Any) -> None:
        with contextlib.suppress(OSError):  # reading the pipe will reveal a dead child
            self.children[number].pipe.send(message)

    def _receive(self, number: int) -> tuple[Any, ...]:
        child = self.children[number]
        try:
            return child.pipe.recv()
        except (EOFError, OSError):
            return DIED, child.ended()

    def _revive(self, number: int, reason: str) -> None:
        """Restart an engine that died, for the rows that its calls still miss.

        If it had already died during one of these calls, they fail. An engine lost with its node
        may be lost again if it sent rows in between; until there is room for it, the others take
        its prompts.
        """
        calls = self.queue.under_way
        is_lost = self.children[number].is_lost
        again = any(number in call.restarted for call in calls)
        if is_lost and number in self._fruitful:
            again = False
        try:
            self._restart(number, reason, again)
        except (EngineDied, OSError) as error:
            self.fail(error)
            return
        for call in calls:
            call.restarted.add(number)
            call.queues.take_back(number, is_free=is_lost)
        unfinished = next((call for call in calls if call.missing and call.error is None), None)
        if unfinished is None:
            return
        self._tell(number, unfinished)
        if is_lost:
            for other in sorted(self._idle):
                self._knows[other].discard(unfinished.number)  # it is told again, and will ask
                self._tell(other, unfinished)

    def _restart(self, number: int, reason: str, again: bool) -> None:
        log_file = self.children[number].log_file
        found_no_node = self.children[number].found_no_node
        self._close(number)
        if found_no_node:
            raise EngineDied(f"engine {number} was not started: {reason}")
        if OUT_OF_MEMORY.search(reason) and self.config.max_num_seqs > 1:
            half = self.config.max_num_seqs // 2
            self.config = self.config.model_copy(update={"max_num_seqs": half})
            log.warning(
                "engine %d ran out of memory: from now on at most %d conversations at once",
                number,
                half,
            )
        elif again:
            raise EngineDied(f"engine {number} died twice: {reason}. Its log: {log_file}")
        log.warning("engine %d died (%s), starting it again; log: %s", number, reason, log_file)
        self._launch(number)

    def _launch(self, number: int) -> None:
        self._fruitful.discard(number)
        self.children[number] = self._started(number)
        self._knows[number] = set()
        self._idle.add(number)

    def _started(self, number: int) -> EngineProcess:
        if self.config.place == "ray":
            from tasks.engines.node_child import NodeChild

            return NodeChild.of_engine(self.config, number, self.log_dir)
        return Child(self.config, number, self.log_dir)

    def _close(self, number: int) -> None:
        self._knows.pop(number, None)
        self._idle.discard(number)
        self.children.pop(number).close()
