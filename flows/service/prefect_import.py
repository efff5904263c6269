"""Import Prefect in three quarters of the time, without a question that its tasks would ask the server."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def import_prefect() -> None:
    """Import Prefect with pandas hidden: Prefect would import it only to recognise its tables.

    A client of a site calls `Site.activate` before. Tasks take no slots of limits on their tags: nothing here sets such
    limits, and a flow would ask the server for them every five seconds and sleep for two whenever its database is busy.
    """
    hide = "pandas" not in sys.modules
    if hide:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        import prefect.main  # noqa: F401
    finally:
        if hide:
            del sys.modules["pandas"]
    from prefect import task_engine

    assert hasattr(task_engine, "_concurrency"), "this Prefect asks for slots in another way"
    task_engine._concurrency = _no_slots  # type: ignore[attr-defined]


def _no_slots(**_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()
