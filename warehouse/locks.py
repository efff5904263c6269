"""Locks on addresses.

Each is a file in `folder`, locked by flock, which the kernel releases when the holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

LOOK_S = 60.0  # how long others may inspect a free lock, as `held` does, on a busy machine


@contextlib.contextmanager
def hold(folder: Path, address: str) -> Iterator[None]:
    """Lock an address; the file names the holder.

    Raises RuntimeError, naming the holder, if it is locked.
    """
    with _locked(folder, address) as file:
        file.truncate(0)
        holder = {
            "address": address,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.time(),
        }
        file.write(json.dumps(holder))
        file.flush()
        try:
            yield
        finally:
            os.unlink(file.name)


@contextlib.contextmanager
def share(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock that others may hold at the same time."""
    folder.mkdir(exist_ok=True)
    with open(_file(folder, name), "a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock of `share` exclusively; others wait until it is released.

    Raises BlockingIOError if anybody holds it.
    """
    folder.mkdir(exist_ok=True)
    with open(_file(folder, name), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_shared(folder: Path, name: str) -> bool:
    """Whether anybody holds a lock by `share`."""
    with contextlib.suppress(FileNotFoundError), open(_file(folder, name), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_free(folder: Path, address: str) -> None:
    """Raise RuntimeError, naming the holder, if an address is locked.

    Writes nothing: creating and removing a lock file would cost more than the rest of the freshness
    check.
    """
    with contextlib.suppress(FileNotFoundError), open(_file(folder, address)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(address, file.read()) from None


def held(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield address, pid, host and since (s since the epoch) of every held lock."""
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if told := _holder(file.read()):
                    yield told


def _locked(folder: Path, address: str) -> TextIO:
    path = _file(folder, address)
    patience_s = [0.0, 0.02, 0.1, 0.0]  # a lock may be about to be released
    looked_at_until = time.monotonic() + LOOK_S
    text = ""
    while patience_s:
        file = open(path, "a+")  # noqa: SIM115
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # else the last holder removed it meanwhile
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        is_held = not _may_share(file)
        file.seek(0)
        text = file.read()
        file.close()
        if is_held or time.monotonic() > looked_at_until:
            time.sleep(patience_s.pop(0))
        else:
            time.sleep(0.01)
    raise _held(address, text)


def _may_share(file: TextIO) -> bool:
    """Whether nobody holds the lock exclusively; others may be inspecting it, as `held` does."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _file(folder: Path, address: str) -> Path:
    return folder / address.replace("/", "~")


def _holder(text: str) -> dict[str, Any]:
    """The content of a lock file; {} for an empty or foreign one."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(content, dict) or not content.keys() >= {"address", "pid", "host", "since"}:
        return {}
    return content


def _held(address: str, text: str) -> RuntimeError:
    who = "another process"
    holder = _holder(text)
    if holder:
        since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
        who = f"process {holder['pid']} on {holder['host']} since {since}"
    return RuntimeError(f"{address} is being built by {who}; wait for it or stop it")
