"""One head for a store whose engines are on several machines.

Only one machine may publish tables of a store, because a network file system may not enforce locks
across machines. So the flow's machine writes a note to `head.json` and renews it while it works; a
second machine is refused until that note is old. Flows on the same machine share it, because locks
work between them. A machine that was suspended or cut off for that long, and finds the note of
another one when it comes back, stops publishing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warehouse.store import Store

HEAD = "head.json"
BEAT_S = 10.0
OLD_S = 90.0  # a machine that was killed is forgotten after this long


@contextlib.contextmanager
def head_of(store: Store) -> Iterator[None]:
    """Be the store's head while the block runs.

    Raises RuntimeError, naming it, if another machine is. If another one takes over meanwhile,
    the store refuses to publish from then on.
    """
    own = {"host": socket.gethostname(), "boot": _boot()}
    path = store.root / HEAD
    _check(path, own)
    _write(store, own)
    # if two machines begin at once, the last writer stays head, and the other finds out here
    time.sleep(min(1.0, BEAT_S / 10))
    _check(path, own)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(store, own, ended), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()


def _beat(store: Store, own: dict[str, str], ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        # a full disk is reported by the stage that it stops
        with contextlib.suppress(OSError):
            there = _read(store.root / HEAD)
            if there is not None and not _is_by(own, there):
                store.refuse_to_publish(_taken_over(store, there))
                return
            _write(store, own)


def _taken_over(store: Store, there: dict[str, Any]) -> RuntimeError:
    return RuntimeError(
        f"the store {store.root} has another head now: process {there.get('pid')} on"
        f" {there.get('host')} took over, as this machine was not heard of for {OLD_S:.0f} s."
        " Nothing more is published from here: repeat the command once the flows there have ended"
    )


def _write(store: Store, own: dict[str, str]) -> None:
    fresh = store.root / "tmp" / f"{uuid.uuid4().hex}.json"
    fresh.write_text(json.dumps({**own, "pid": os.getpid(), "at": time.time()}))
    os.replace(fresh, store.root / HEAD)


def _check(path: Path, own: dict[str, str]) -> None:
    there = _read(path)
    if there is None or _is_by(own, there):
        return
    age_s = time.time() - there["at"]
    if age_s < OLD_S:
        raise RuntimeError(
            f"the store {path.parent} has a head already: process {there.get('pid')} on"
            f" {there.get('host')}, seen {max(age_s, 0):.0f} s ago. Run there, give this run a"
            f" store of its own (SELFPLAY_STORE), or wait {OLD_S:.0f} s after that machine was lost"
        )


def _is_by(own: dict[str, str], note: dict[str, Any]) -> bool:
    return {key: note.get(key) for key in own} == own


def _read(path: Path) -> dict[str, Any] | None:
    """The note; None if there is none, or if it is damaged."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("at"), int | float):
        return None
    return value


def _boot() -> str:
    """An id that tells apart machines of the same name, as containers may be; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
