"""One engine serves the calls of a fleet."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, cast

from tasks.engines.call_queue import ROLL_OUT
from tasks.engines.child import CALL, DONE, END, FAILED, LOT, MORE, OUT_OF_MEMORY, ROWS, SLEEP
from tasks.engines.node_folders import NodeFolders
from tasks.models.engine import Engine, EngineDied
from tasks.rollouts.dialogue import Retriever
from tasks.rollouts.play import Over, Play, RolloutCall, SampleRequest
from tasks.rollouts.replies import datum_logprobs, reply_logprobs
from tasks.rollouts.rollout import rollout_row
from warehouse.schemas import PromptRow, Row

ROWS_AT_ONCE = 16
# work that shares an engine with no other work
LOGPROBS = {"reply_logprobs": reply_logprobs, "datum_logprobs": datum_logprobs}


class CallServer:
    """Serves the calls of a fleet on one engine.

    The conversations of all calls share its batches. The fleet sends other work only when nothing
    else is under way. `tasks.engines.child` describes the messages and when they are sent. Rows go
    back in small lots.
    """

    def __init__(
        self,
        pipe: Connection,
        engine: Engine,
        load_index: Callable[[str | None], Retriever | None],
        folders: NodeFolders | None = None,
    ):
        """`folders`: the folders of the flow's machine, if the engine is on another machine."""
        self._folders = folders
        self._pipe = pipe
        self._engine = engine
        self._load_index = load_index
        self._play = Play(engine)
        self._calls: dict[int, RolloutCall] = {}
        # the next rows wanted: call, prompt and sample of each
        self._lot: deque[tuple[int, Row, int]] = deque()
        self._may_ask = False
        self._awaits_lot = False
        self._rows: dict[int, list[Row]] = {}
        self._sent = time.monotonic()

    def serve(self) -> None:
        """Serve calls until the fleet is closed.

        Raises:
            EOFError: the fleet was closed.
            EngineDied: the engine failed, or ran out of memory.
        """
        try:
            while True:
                while self._pipe.poll() or not (self._play.is_busy or self._may_ask):
                    self._hear()
                self._keep(self._play.fill(self._ask))
                if self._play.is_busy:
                    self._keep(self._play.go_on(self._is_interrupted))
                self._send_rows()
                self._tell_errors()
        finally:
            self._send_rows(all_of_them=True)

    def _hear(self) -> None:
        """Wait for a message from the fleet and act on it."""
        kind, *content = self._pipe.recv()
        if kind == CALL:
            self._may_ask = True
            number, settings = content
            if number not in self._calls:
                self._open(number, settings)
        elif kind == LOT:
            number, lot = content
            self._lot += [(number, prompt, sample) for prompt, samples in lot for sample in samples]
            self._may_ask = bool(lot)
            self._awaits_lot = False
        elif kind == END:
            self._rows.pop(content[0], None)
            call = self._calls.pop(content[0], None)
            if call is not None:
                self._play.end(call)
        else:
            assert kind == SLEEP
            self._engine.sleep()
            self._pipe.send((DONE,))

    def _next(self) -> tuple[int, Row, int] | None:
        """The call, prompt and sample of the next row wanted; None if none is wanted at present."""
        while True:
            if self._lot:
                return self._lot.popleft()
            if not self._may_ask:
                return None
            self._pipe.send((MORE,))
            self._awaits_lot = True
            while self._awaits_lot:
                self._hear()

    def _ask(self) -> SampleRequest | None:
        """The next conversation to begin; None if none is wanted at present."""
        for number, prompt, sample in iter(self._next, None):
            if number in self._calls:  # else it has failed in the meantime
                return self._calls[number], cast(PromptRow, prompt), sample
        return None

    def _open(self, number: int, settings: dict[str, Any]) -> None:
        work = settings.pop("work")
        try:
            settings = self._on_this_machine(settings)
        except Exception as error:  # a folder is missing, a disk is full: other calls may go on
            self._tell_error(number, error)
            return
        self._engine.wake()
        if work != ROLL_OUT:
            self._lot.clear()  # what is left of a call that failed
            prompts = (prompt for _, prompt, _ in iter(self._next, None))
            for row in LOGPROBS[work](self._engine, prompts=prompts, **settings):
                self._rows.setdefault(number, []).append(row)
                self._send_rows()
            self._send_rows(all_of_them=True)
            return
        try:
            retriever = self._load_index(settings.pop("index"))
            self._calls[number] = self._play.open(retriever=retriever, number=number, **settings)
        except EngineDied:
            raise
        except Exception as error:  # whatever it is, it concerns this caller: other calls go on
            self._tell_error(number, error)

    def _on_this_machine(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a call, with the paths of their folders on this machine."""
        if self._folders is None:
            return settings
        here = {**settings, "policy": self._folders.policy(settings["policy"])}
        if settings.get("index"):
            here["index"] = self._folders.path(settings["index"])
        return here

    def _keep(self, over: Over | Iterator[tuple[RolloutCall, Any]]) -> None:
        for call, conversation in over:
            row = cast(Row, rollout_row(conversation, call.talk.policy, call.seed))
            self._rows.setdefault(call.number, []).append(row)

    def _is_interrupted(self) -> bool:
        return self._pipe.poll() or self._are_rows_due()

    def _are_rows_due(self) -> bool:
        if sum(map(len, self._rows.values())) >= ROWS_AT_ONCE:
            return True
        return bool(self._rows) and time.monotonic() - self._sent > 1

    def _send_rows(self, all_of_them: bool = False) -> None:
        """Send finished rows if there are many or some have waited long.

        The rows of a call that has no more conversations here are sent at once.
        """
        due = all_of_them or self._are_rows_due()
        for number in list(self._rows):
            if due or (number in self._calls and not self._calls[number].active):
                self._pipe.send((ROWS, self._rows.pop(number), number))
        if due:
            self._sent = time.monotonic()

    def _tell_errors(self) -> None:
        for number, call in list(self._calls.items()):
            if call.error is not None:
                del self._calls[number]
                self._tell_error(number, call.error)

    def _tell_error(self, number: int, error: Exception) -> None:
        traceback.print_exception(error)
        if OUT_OF_MEMORY.search(repr(error)):
            raise EngineDied(repr(error)) from error
        self._pipe.send((FAILED, sendable(error), number))


def sendable(error: Exception) -> Exception:
    """An error as plain text that can be sent; it keeps its type if the user can fix it."""
    if isinstance(error, ValueError):
        return ValueError(str(error))
    return RuntimeError(f"engine process: {error!r}")
