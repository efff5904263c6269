"""Where this project is, and where its store is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.freshness import Freshness
    from warehouse.store import Store

SOURCE = Path(__file__).resolve().parents[2]


def store_root() -> Path:
    """The folder of all tables: data/store, or SELFPLAY_STORE, relative to the project's folder."""
    return (SOURCE / (os.environ.get("SELFPLAY_STORE") or "data/store")).resolve()


def open_store(freshness: Freshness | None = None) -> Store:
    """The tables of all runs."""
    from warehouse.store import Store

    return Store(store_root(), freshness)


def existing_store() -> Store:
    """The tables of all runs, for a command that only reads them.

    Raises ValueError, and makes nothing, if there is no store.
    """
    check_store()
    return open_store()


def check_store() -> None:
    """Raise ValueError if there is no store."""
    if has_store():
        return
    why = " yet: `make demo` makes it, or a run"
    if os.environ.get("SELFPLAY_STORE"):
        why = ", which SELFPLAY_STORE names: only a run makes one"
    raise ValueError(f"there is no store at {store_root()}{why}")


def has_store() -> bool:
    from warehouse.store import Store

    return Store.is_at(store_root())
