"""Show on the terminal the log of stages that a command runs itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import datetime

from flows.app.service.short_log import ShortLog
from flows.app.service.waiting import say
from flows.app.service.watch import log_line

LOGGER = "selfplay"


@contextlib.contextmanager
def shown_log() -> Iterator[None]:
    """Show what stages log while the block runs, with a count of consecutive fresh stages."""
    short = ShortLog(say)
    handler = _ShortLog(short)
    logger = logging.getLogger(LOGGER)
    handlers = logger.handlers
    propagate = logger.propagate
    level = logger.level
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        short.end()
        logger.handlers = handlers
        logger.propagate = propagate
        logger.setLevel(level)


class _ShortLog(logging.Handler):
    def __init__(self, short: ShortLog) -> None:
        super().__init__()
        self._short = short

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created)
        if line := log_line(at, record.levelno, record.getMessage()):
            self._short(line)
