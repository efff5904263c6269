"""Find the tables of a run that its flow would rebuild now, which cards and comparisons call
stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.app.command.start import inquire
from flows.app.service.waiting import waiting

if TYPE_CHECKING:
    from warehouse.provenance import DryRun
    from warehouse.store import Store


def check(store: Store, run: str) -> DryRun:
    """The result of a dry run of the flow on the run's tables.

    For a run whose flow, settings or models are gone, it holds only the problem.
    """
    from flows.runtime.record import last_request
    from warehouse.freshness import NEVER_MADE
    from warehouse.provenance import DryRun

    try:
        request = last_request(store, run)
        with waiting("the stages to be checked"):
            inquiry = inquire(request)
    except (ValueError, ImportError, OSError) as problem:
        return DryRun(problem=str(problem))
    reasons = {address: why for address, why in inquiry.reasons if why and why != NEVER_MADE}
    return DryRun(reasons)
