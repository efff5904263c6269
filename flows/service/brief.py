"""A short flow run: runs in this process, and is recorded by plain requests to the server.

Prefect's own engine would take longer to import, to start its threads and to end them than such a flow run takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from flows.service.api import API
from flows.service.condensed import Condensed
from flows.service.site import Site
from flows.service.watch import log_line
from warehouse.table import Table

LOGGER = "selfplay"
Say = Callable[[str], None]


@contextlib.contextmanager
def recorded(site: Site, api: API, flow_run: dict[str, Any], say: Say = print) -> Iterator[None]:
    """Record the block as a flow run that is PENDING on the server: its states and the project's log.

    Its process file tells others that this process runs it or, after a kill, that it died.
    """
    say = Condensed(say)
    process, log = site.process(f"flow-{flow_run['id']}"), _Log(flow_run["id"], say)
    process.write(os.getpid())
    try:
        api.set_state(flow_run["id"], "RUNNING")
        with _heard_by(log):
            yield
    except BaseException as problem:
        say.end()
        told = f"{type(problem).__name__}: {problem}"
        log.keep(datetime.now(UTC), logging.ERROR, told)
        api.write_logs(log.lines)
        api.set_state(flow_run["id"], "FAILED" if isinstance(problem, Exception) else "CANCELLED", told)
        raise
    else:
        api.write_logs(log.lines)
        api.set_state(flow_run["id"], "COMPLETED")
        say(f"{datetime.now():%H:%M:%S} {flow_run['name']} completed")
    finally:
        process.path.unlink(missing_ok=True)


def record_stages(api: API, flow_run: dict[str, Any], tables: Iterable[Table]) -> None:
    """Record each table as a task run of the flow run. The server sees only the time of recording; the message states
    the time of the work."""
    for table in tables:
        task = table.recipe["stage"].rsplit(".", 1)[-1].lstrip("_")
        api.record_task(flow_run["id"], task, table.at.shown, f"{table.num_rows} rows in {table.recipe['seconds']} s")


@contextlib.contextmanager
def _heard_by(log: _Log) -> Iterator[None]:
    """Send the project's log to `log` and nowhere else."""
    logger = logging.getLogger(LOGGER)
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [log], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


class _Log(logging.Handler):
    """Shows every line and keeps it for the server."""

    def __init__(self, flow_run_id: str, say: Say) -> None:
        super().__init__()
        self.flow_run_id, self.say = flow_run_id, say
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        self.keep(at, record.levelno, record.getMessage())
        if line := log_line(at.astimezone(), record.levelno, record.getMessage()):
            self.say(line)

    def keep(self, at: datetime, level: int, message: str) -> None:
        line = {"name": LOGGER, "level": level, "message": message, "timestamp": at.isoformat()}
        self.lines.append({**line, "flow_run_id": self.flow_run_id})
