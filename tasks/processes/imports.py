"""Let a child process skip imports that it does not need."""

import contextlib
import sys
from collections.abc import Iterator


def leave_out(*modules: str) -> None:
    """Make imports of these modules fail in this process, as if they were not installed.

    Libraries import them on loading for features that this process never uses, which takes seconds
    and tens of megabytes.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


@contextlib.contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """`leave_out` until the context ends: later imports may need the modules."""
    absent = [name for name in modules if name not in sys.modules]
    leave_out(*absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name)
