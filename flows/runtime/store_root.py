"""Where the code, the user's files and the store are.

In a checkout, all are in its folder. An installed package keeps the user's files in a workspace
with the same layout: `data/store`, `data/prefect`, `.env`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.freshness import Freshness
    from warehouse.store import Store

SOURCE = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (SOURCE / "requirements" / "install.sh").is_file()  # no wheel has it
BUILT_IN = ("english", "micro")  # folders in `data` that profiles name and a wheel includes


def find_workspace(source: Path, in_checkout: bool) -> Path:
    """The folder of the user's files, to which paths in profiles and settings are relative.

    It is the checkout, or else SELFPLAY_HOME, or else `~/.selfplay`.
    """
    if in_checkout:
        return source
    named = os.environ.get("SELFPLAY_HOME")
    if named:
        return Path(named).expanduser().resolve()
    return (Path.home() / ".selfplay").resolve()


WORKSPACE = find_workspace(SOURCE, IN_CHECKOUT)
OWN_RULES = WORKSPACE / "findings"  # the user's rules for findings, besides those that are shipped


def open_workspace() -> Path:
    """The workspace, with links to the built-in data where profiles expect it, as in a checkout."""
    if IN_CHECKOUT:
        return WORKSPACE
    for name in BUILT_IN:
        built_in = SOURCE / "data" / name
        link = WORKSPACE / "data" / name
        if link.resolve() == built_in or (link.exists() and not link.is_symlink()):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{name}-{os.getpid()}")
        fresh.symlink_to(built_in)
        fresh.replace(link)  # the link may exist, from another environment or from a deleted one
    return WORKSPACE


@contextlib.contextmanager
def in_workspace() -> Iterator[None]:
    """Make the workspace the working directory, as a worker does."""
    with contextlib.chdir(open_workspace()):
        yield


def store_root() -> Path:
    """The folder of all tables: data/store, or SELFPLAY_STORE, relative to the workspace."""
    return (WORKSPACE / (os.environ.get("SELFPLAY_STORE") or "data/store")).resolve()


def open_store(freshness: Freshness | None = None) -> Store:
    """The tables of all runs."""
    from warehouse.store import Store

    return Store(store_root(), freshness)


def existing_store() -> Store:
    """The tables of all runs, for a command that only reads them.

    Raises ValueError, without creating anything, if there is no store.
    """
    check_store()
    return open_store()


def check_store() -> None:
    """Raise ValueError if there is no store."""
    if has_store():
        return
    why = " yet: `selfplay demo` makes it, or a run"
    if os.environ.get("SELFPLAY_STORE"):
        why = ", which SELFPLAY_STORE names: only a run makes one"
    raise ValueError(f"there is no store at {store_root()}{why}")


def has_store() -> bool:
    """Whether there is a store at `store_root()`; does not create one."""
    from warehouse.store import Store

    return Store.is_at(store_root())
