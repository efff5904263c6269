"""Run a flow in this process; the server records states, log and tasks as if a worker ran it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from flows.service.condensed import Condensed
from flows.service.outcast import end_when_given_up
from flows.service.prefect_import import import_prefect
from flows.service.site import Site
from flows.service.watch import log_line

Say = Callable[[str], None]


def run_here(site: Site, method: Any, flow_run: dict[str, Any], parameters: dict[str, Any], say: Say = print) -> None:
    """Run a method as the flow run that is PENDING on the server; its exception propagates."""
    site.activate()
    import_prefect()
    from prefect.client.schemas.objects import FlowRun
    from prefect.flow_engine import run_flow

    say, process = Condensed(say), site.process(f"flow-{flow_run['id']}")
    process.write(os.getpid())
    end_when_given_up(flow_run["id"])
    try:
        with _log_to(say):
            run_flow(method.flow, flow_run=FlowRun.model_validate(flow_run), parameters=parameters)
        say(f"{datetime.now():%H:%M:%S} {flow_run['name']} completed")
    finally:
        say.end()
        process.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _log_to(say: Say) -> Iterator[None]:
    """Show the log on the terminal like `watch`, instead of through Prefect's handlers."""
    root, terminal = logging.getLogger(), _Terminal(say)
    before = root.handlers[:]
    root.handlers = [terminal]
    try:
        yield
    finally:
        root.handlers = before


class _Terminal(logging.Handler):
    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        if line := log_line(datetime.fromtimestamp(record.created), record.levelno, record.getMessage()):
            self.say(line)
