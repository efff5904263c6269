"""The Prefect server as `selfplay up` starts it."""

from __future__ import annotations

import logging
import sys


def is_news(record: logging.LogRecord) -> bool:
    """Whether a log line is worth keeping.

    Lines about one of Prefect's own tasks are not: it often finds SQLite locked when a worker
    polls, and Prefect retries it.
    """
    return "mark_deployments_ready" not in record.getMessage()


def main() -> None:
    """Run Prefect's server until this process ends. Log lines not worth keeping are dropped."""
    from prefect.cli import app

    logging.getLogger("docket.dependencies").addFilter(is_news)
    logging.getLogger("docket.worker").addFilter(is_news)
    sys.argv = ["prefect", "server", "start"]
    app()


if __name__ == "__main__":
    main()
