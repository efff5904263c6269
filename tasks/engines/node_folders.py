"""Folders for nodes that do not see the flow's disk: weights, adapters and search indexes.

An engine's process on a node asks the flow for a folder by its path. The flow answers with the list
of the folder's files and their hashes. The node caches folders, each under the hash of its list, so
the engines of a node fetch a folder only once, and an unchanged folder never again.

The messages, on a separate connection:

    node: the folder's path
    flow: a list of `FolderFile`, or the text of an error
    node: whether the content is wanted
    flow: the bytes of each file, in chunks
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import cast

from tasks.models.engine import EngineConfig, Policy
from warehouse.draft import hash_json

CACHE = (
    "SELFPLAY_NODE_CACHE"  # a variable of a node: its folder of copies, which are then always used
)
CHUNK_BYTES = 1 << 24
MOST_KEPT = 6  # maximum number of folders in a node's cache: base, players, judge, index


@dataclass(frozen=True)
class FolderFile:
    """A file of a folder that is sent."""

    name: str  # relative to the folder, with slashes
    num_bytes: int
    sha256: str


def send_folders(connection: Connection) -> None:
    """The flow's side: send each folder that is asked for, until the connection ends."""
    with connection:
        try:
            while True:
                _send(connection, Path(connection.recv()))
        except (EOFError, OSError):
            pass  # the node has what it wanted, or is gone


def _send(connection: Connection, folder: Path) -> None:
    try:
        files = folder_files(folder)
    except OSError as problem:
        connection.send(f"the flow cannot read {folder}: {problem.strerror or problem}")
        return
    connection.send(files)
    if not connection.recv():
        return
    for file in files:
        num_sent = 0
        with (folder / file.name).open("rb") as content:
            while chunk := content.read(CHUNK_BYTES):
                connection.send_bytes(chunk)
                num_sent += len(chunk)
        if num_sent != file.num_bytes:  # the node would wait for the rest
            raise OSError(f"{folder / file.name} changed while it was sent")


def folder_files(folder: Path) -> list[FolderFile]:
    """The files in a folder and its subfolders, by name. A file is hashed only once, unless it
    changes.

    Raises OSError if the folder does not exist or has no files.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if not paths:
        raise FileNotFoundError(f"{folder} is no folder with files")
    files = []
    for path in paths:
        stat = path.stat()
        digest = _digest(path, stat.st_size, stat.st_mtime_ns)
        files.append(FolderFile(path.relative_to(folder).as_posix(), stat.st_size, digest))
    return files


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, num_bytes: int, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class NodeFolders:
    """The node's side: folders of the flow's machine, under paths on this machine.

    A path that exists here is used as it is, unless the variable `SELFPLAY_NODE_CACHE` names a
    folder for copies: copies on a fast local disk may pay off even if the path is shared.
    """

    def __init__(self, dial: Callable[[], Connection], environment: dict[str, str]):
        """`dial` opens a connection on which the flow runs `send_folders`."""
        self._dial = dial
        self._always = bool(environment.get(CACHE))
        default = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfplay"
        self._cache = Path(environment.get(CACHE) or default)

    @classmethod
    def of_flow(cls, host: str, port: str, key: str) -> NodeFolders:
        """Folders of the flow that listens at this address; connections need the `key`."""

        def dial() -> Connection:
            return cast(Connection, Client((host, int(port)), authkey=bytes.fromhex(key)))

        return cls(dial, dict(os.environ))

    def config(self, config: EngineConfig) -> EngineConfig:
        """The engine's configuration, with the model's path on this machine."""
        return config.model_copy(update={"model": self.path(config.model)})

    def policy(self, policy: Policy) -> Policy:
        """The policy, with the paths of its weights and its adapter on this machine."""
        adapter = policy.adapter and self.path(policy.adapter)
        return policy.model_copy(update={"weights": self.path(policy.weights), "adapter": adapter})

    def path(self, path: str) -> str:
        """The path on this machine of a folder with this path on the flow's; hub names stay.

        Raises:
            ValueError: the flow has no such folder.
            OSError: the connection ended, a file arrived damaged, or the disk is full.
        """
        if not os.path.isabs(path) or (os.path.isdir(path) and not self._always):
            return path
        with self._dial() as flow:
            flow.send(path)
            files: list[FolderFile] | str = flow.recv()
            if isinstance(files, str):
                raise ValueError(files)
            kept = self._cache / hash_json([astuple(file) for file in files])
            self._cache.mkdir(parents=True, exist_ok=True)
            with (self._cache / f"{kept.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another engine of this node may be fetching it
                is_wanted = not kept.is_dir()
                flow.send(is_wanted)
                if is_wanted:
                    _receive(flow, files, kept)
                os.utime(kept)
        self._forget_oldest()
        return str(kept)

    def _forget_oldest(self) -> None:
        """Remove the folders that were used least recently. Engines that have loaded one no longer
        need it, and an adapter that is needed again is fetched again."""
        folders = [path for path in self._cache.iterdir() if path.is_dir()]
        for folder in sorted(folders, key=_last_use, reverse=True)[MOST_KEPT:]:
            with (self._cache / f"{folder.stem}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process is fetching it
                shutil.rmtree(folder, ignore_errors=True)


def _last_use(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # another engine has removed it
        return 0.0


def _receive(flow: Connection, files: Sequence[FolderFile], kept: Path) -> None:
    """Write the files that the flow sends; the folder `kept` appears once all have arrived."""
    part = kept.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)  # left by a killed process: we hold the lock
    try:
        for file in files:
            path = part / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            missing = file.num_bytes
            with path.open("wb") as content:
                while missing > 0:
                    try:
                        chunk = flow.recv_bytes()
                    except EOFError:
                        raise OSError(f"{file.name} did not arrive whole") from None
                    content.write(chunk)
                    digest.update(chunk)
                    missing -= len(chunk)
            if digest.hexdigest() != file.sha256:
                raise OSError(f"{file.name} arrived damaged, or changed on the way")
        part.rename(kept)
    finally:
        shutil.rmtree(part, ignore_errors=True)
