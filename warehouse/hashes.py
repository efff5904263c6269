"""Content hashes of large external files such as models.

A file is read once, then recognised by its size and modification time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from warehouse.draft import hash_file, hash_json

# a younger file may change again without a change of its modification time
SETTLED_NS = 2_000_000_000
Known = dict[str, Any]  # path of a file -> its size in bytes, modification time in ns, and hash
_read_by_this_process: Known = {}


def remembered_hash(folder: Path, memory: Path) -> str:
    """`warehouse.draft.hash_folder` with files' hashes cached in `memory`.

    An unwritable cache is ignored.
    """
    known = _read(memory)
    value, fresh = _hash(folder, known)
    if fresh != known:
        _write(memory, fresh)
    return value


def hash_once(folder: Path) -> str:
    """`warehouse.draft.hash_folder`, reading each file only once per process."""
    value, fresh = _hash(folder, _read_by_this_process)
    _read_by_this_process.update(fresh)
    return value


def model_identity(model: str) -> str:
    """The identity of a model in recipes.

    For a model in a folder, it is the hash of its content, wherever the folder is; for any other,
    its name on the hub.
    """
    folder = Path(model)
    return hash_once(folder) if folder.is_dir() else model


def _hash(folder: Path, known: Known) -> tuple[str, Known]:
    """The hash of a folder, and the known hashes with those of its settled files."""
    now = time.time_ns()
    entries = []
    fresh = dict(known)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        status = path.stat()
        mark = [status.st_size, status.st_mtime_ns]
        *before, value = known.get(str(path.resolve())) or [None, None, None]
        if before != mark:
            value = hash_file(path)
            fresh[str(path.resolve())] = [*mark, value]
        if now - status.st_mtime_ns < SETTLED_NS:
            fresh.pop(str(path.resolve()))
        entries.append([str(path.relative_to(folder)), value])
    return hash_json(entries), fresh


def _read(memory: Path) -> Known:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {
        path: entry
        for path, entry in known.items()
        if isinstance(entry, list) and len(entry) == len(("bytes", "mtime_ns", "hash"))
    }


def _write(memory: Path, hashes: Known) -> None:
    there = {path: entry for path, entry in hashes.items() if Path(path).exists()}
    fresh = memory.with_name(f".{memory.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(there, indent=1), encoding="utf-8")
        os.replace(fresh, memory)
