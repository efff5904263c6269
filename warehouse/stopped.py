"""Why a run stopped: the error that ended its last flow run, kept beside its tables.

The error is removed when the run is continued. A process that was killed leaves none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from warehouse.address import check_run_name
from warehouse.store import Store

STOPPED = "stopped.json"


@dataclass(frozen=True)
class Stopped:
    """The error that stopped a run, and its local time."""

    kind: str  # the class of the error, such as Alarm
    why: str
    at: str

    def __str__(self) -> str:
        return f"stopped at {self.at} by {self.kind}: {self.why}"


@contextlib.contextmanager
def remembered(store: Store, run: str) -> Iterator[None]:
    """Forget why the run stopped before; record the error that ends the block, if any."""
    (store.folder(check_run_name(run)) / STOPPED).unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        # the error may be a full disk, and then this write fails, too
        with contextlib.suppress(OSError):
            value = {"kind": type(error).__name__, "why": str(error), "at": at}
            store.keep(run, STOPPED, value)
        raise


def stopped(store: Store, run: str) -> Stopped | None:
    """The error that stopped the run; None if none did, or if the run has been continued since.

    Raises Damaged for a truncated file.
    """
    value = store.kept(run, STOPPED)
    if value is None:
        return None
    return Stopped(kind=value["kind"], why=value["why"], at=value["at"])
