"""Let a child process skip imports that it does not need."""

import sys


def leave_out(*modules: str) -> None:
    """Let imports of these modules fail in this process, as if they were not installed.

    Libraries import them at their start for what this process never does: that takes seconds and tens of megabytes.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
