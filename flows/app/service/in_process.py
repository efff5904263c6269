"""A flow run in this process, without Prefect's engine; plain requests record it on the server.

Importing Prefect's engine and starting and ending its threads takes seconds, which is longer than a
short flow run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from flows.app.service.api import API
from flows.app.service.short_log import ShortLog
from flows.app.service.site import Site
from flows.app.service.watch import log_line
from warehouse.table import Table

LOGGER = "selfplay"
SEND_S = 2.0  # between two requests that send log lines
UNANSWERED = (httpx.TransportError, RuntimeError)  # the server is gone, or refuses
Say = Callable[[str], None]


@contextlib.contextmanager
def recorded(site: Site, api: API, flow_run: dict[str, Any], say: Say = print) -> Iterator[None]:
    """Record the states and the log of the block as those of a flow run that is PENDING so far.

    A process file tells others that this process runs it or, after a kill, that it died. If the
    server no longer answers at the end, a message says so; the block's outcome does not change.
    """
    short = ShortLog(say)
    process = site.process(f"flow-{flow_run['id']}")
    log = _Log(api, flow_run["id"], short)
    process.write(os.getpid())
    try:
        api.set_state(flow_run["id"], "RUNNING")
        with _sends_its_log_to(log):
            yield
    except BaseException as problem:
        short.end()
        message = f"{type(problem).__name__}: {problem}"
        log.keep(datetime.now(UTC), logging.ERROR, message)
        state = "FAILED" if isinstance(problem, Exception) else "CANCELLED"
        with _if_the_server_answers("the end of the flow run", say):
            log.end()
            api.set_state(flow_run["id"], state, message)
        raise
    else:
        with _if_the_server_answers("the end of the flow run", say):
            log.end()
            api.set_state(flow_run["id"], "COMPLETED")
        short(f"{datetime.now():%H:%M:%S} {flow_run['name']} completed")
    finally:
        process.path.unlink(missing_ok=True)


def record_stages(
    api: API, flow_run: dict[str, Any], tables: Iterable[Table], say: Say = print
) -> None:
    """Record each table as a task run of the flow run, or say that the server no longer answers.

    The server only knows when they were recorded; the message states how long the work took.
    """
    with _if_the_server_answers("the stages of the flow run", say):
        for table in tables:
            api.record_task(
                flow_run["id"],
                task=table.recipe["stage"].rsplit(".", 1)[-1].lstrip("_"),
                name=table.at.shown,
                message=f"{table.num_rows} rows in {table.recipe['seconds']} s",
            )


@contextlib.contextmanager
def _if_the_server_answers(what: str, say: Say) -> Iterator[None]:
    """If the block cannot record `what`, say why and continue: the work has succeeded or failed
    whether or not the server knows."""
    try:
        yield
    except UNANSWERED as problem:
        say(f"not recorded: {what} ({problem})")


@contextlib.contextmanager
def _sends_its_log_to(log: _Log) -> Iterator[None]:
    """Send the project's log to `log` and nowhere else."""
    logger = logging.getLogger(LOGGER)
    handlers = logger.handlers
    propagate = logger.propagate
    level = logger.level
    logger.handlers = [log]
    logger.propagate = False
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.propagate = propagate
        logger.setLevel(level)


class _Log(logging.Handler):
    """Shows every line, and sends it to the server within seconds."""

    def __init__(self, api: API, flow_run_id: str, say: Say) -> None:
        super().__init__()
        self.api = api
        self.flow_run_id = flow_run_id
        self.say = say
        self.unsent: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self.sender = threading.Thread(target=self._send_until_ended, daemon=True)
        self.sender.start()

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        self.keep(at, record.levelno, record.getMessage())
        if line := log_line(at.astimezone(), record.levelno, record.getMessage()):
            self.say(line)

    def keep(self, at: datetime, level: int, message: str) -> None:
        self.unsent.append(
            {
                "name": LOGGER,
                "level": level,
                "message": message,
                "timestamp": at.isoformat(),
                "flow_run_id": self.flow_run_id,
            }
        )

    def end(self) -> None:
        """Send what is left."""
        self.ended.set()
        self.sender.join()
        self._send()

    def _send_until_ended(self) -> None:
        while not self.ended.wait(SEND_S):
            # the flow continues whether or not the server answers
            with contextlib.suppress(*UNANSWERED):
                self._send()

    def _send(self) -> None:
        lines = list(self.unsent)
        self.api.write_logs(lines)
        del self.unsent[: len(lines)]
