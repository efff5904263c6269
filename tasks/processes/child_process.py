"""Child processes that do not outlive the process that started them."""

import os
import sys
import threading
import time
from typing import NoReturn

PARENT = "SELFPLAY_PARENT"


def parent_variables() -> dict[str, str]:
    """Environment variables that tell a child process its parent: this process.

    The parent may be gone before the child can ask the system.
    """
    return {PARENT: str(os.getpid())}


def die_with_parent() -> None:
    """End this process when its parent ends, even in the middle of a computation.

    The parent is the process that the environment names (`parent_variables`), or else the current
    one. The kernel's own signal for this is tied to the parent's thread, and stages run in threads.
    """
    parent = int(os.environ.get(PARENT) or os.getppid())
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def leave(code: int) -> NoReturn:
    """End this process immediately.

    Threads of a process group still run and may abort the interpreter's shutdown: Gloo's threads
    keep tensors even after the group has been destroyed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
