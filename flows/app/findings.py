"""The findings of a run, by the shipped rules and the user's own rules in the workspace.

    from flows.app.findings import findings
    findings(store, "mine")                    # in a command
    findings(lake, "mine", iteration=2)        # in a process that keeps a Lake, as the viewer does

The fields of a finding are in `tasks.findings.find`; its README explains how to write a rule.
"""

from __future__ import annotations

from flows.runtime.store_root import OWN_RULES
from tasks.findings import find
from tasks.findings.find import Finding
from warehouse.lake import Lake
from warehouse.store import Store


def findings(
    store: Store | Lake, run: str, iteration: int | None = None, *, only: str | None = None
) -> list[Finding]:
    """The findings of a run, most severe first.

    `iteration`: consider the run only up to this iteration. `only`: the name of a single rule to
    apply.
    """
    lake = store if isinstance(store, Lake) else Lake(store)
    return find.findings(lake, run, iteration=iteration, folders=(OWN_RULES,), only=only)
