"""Let a child process skip imports that it does not need."""

import contextlib
import sys
from collections.abc import Iterator


def leave_out(*modules: str) -> None:
    """Let imports of these modules fail in this process, as if they were not installed.

    Libraries import them at their start for what this process never does: that takes seconds and
    tens of megabytes.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


@contextlib.contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """The same until the context ends: what is imported later may need them."""
    absent = [name for name in modules if name not in sys.modules]
    leave_out(*absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name)
