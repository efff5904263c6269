"""A mirror: copies of runs in a bucket (S3, GCS, Azure) or in a folder, for `push` and `pull`.

objects/ab/abcdef...                 a file, named by the hash of its bytes: written once
runs/RUN/mirror.json                 which run has this name; whoever creates it first owns the name
runs/RUN/iter-003/.../recipe.json    a table; created after its files, and only if absent
runs/RUN/request.json ...            what the run keeps beside its tables; the latest push wins

A recipe is the commit: before it exists, no reader knows of the table. So an interrupted push
shows the tables that it completed, in the order in which they were made, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from warehouse.address import Address, check_run_name
from warehouse.draft import FILES, PARTS, RECIPE, SEAL, seal_of
from warehouse.schemas import TABLES, UPDATES
from warehouse.table import PUBLISHED, RUNS, Damaged
from warehouse.version import VERSION

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from warehouse.store import Store

OWNER = "mirror.json"  # beside a run's tables, here and in the mirror
OBJECTS = "objects"
ROWS = "rows"
WEIGHTS = "weights"
OPTIMIZER = "optimizer state"
MOST_BYTES = 1 << 28  # of a recipe or of another JSON file
AT_ONCE = 8  # transfers
TABLES_AT_ONCE = 32  # tables whose files are transferred together
MOST_TRIES = 5  # two conditional writes at once may end in a conflict that names no winner
HASH = re.compile(r"[0-9a-f]{32}")
KEPT = re.compile(r"[\w.+-]{1,120}\.json", re.ASCII)
PART = re.compile(r"part-\d{5,}\.parquet", re.ASCII)
UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://")
CREDENTIALS = (
    "credentials come from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with"
    " AWS_REGION, and AWS_ENDPOINT_URL for other S3 services), GOOGLE_APPLICATION_CREDENTIALS, or"
    " AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
)


def open_mirror(url: str) -> ObjectStore:
    """The bucket at s3://, gs:// or az://, or the folder at a path, which is created if needed.

    Raises ValueError for an address that is none of these.
    """
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, from_url

    if not SCHEME.match(url) or url.startswith("file://"):
        folder = Path(url.removeprefix("file://")).expanduser().resolve()
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file: a mirror is a folder or the address of a bucket")
        return LocalStore(folder, mkdir=True)
    try:
        return from_url(url)
    except (BaseError, ValueError) as problem:
        raise ValueError(
            f"{url} cannot be opened: {_first_line(problem)}. A mirror is s3://BUCKET/PREFIX,"
            f" gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or a folder; {CREDENTIALS}"
        ) from None


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of the bucket into a RuntimeError that says `what` could not be done, and why.

    Errors of files of the store pass through unchanged.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as problem:
        raise RuntimeError(
            f"{what}: access denied ({_first_line(problem)}); {CREDENTIALS}"
        ) from None
    except (BaseError, FileNotFoundError) as problem:
        if getattr(problem, "errno", None) is not None:
            raise  # a file of the store
        raise RuntimeError(
            f"{what}: {_first_line(problem)}. Repeat the command: it continues where it stopped"
        ) from problem


@contextlib.contextmanager
def transfers(store: Store, run: str, done: str) -> Iterator[ThreadPoolExecutor]:
    """Yield threads for the transfers of a run, locked against any other push or pull.

    Raises RuntimeError if it is being pushed or pulled already, or if the bucket fails; the message
    then says that the run cannot be `done` ("pushed", "pulled").
    """
    with (
        store.lock(str(Address(run, table="mirror"))),
        explained(f"run {run!r} cannot be {done}"),
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        yield threads


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:300]


# --- keys ------------------------------------------------------------------------------------


def object_key(content_hash: str) -> str:
    """The key of the file with this hash.

    >>> object_key("abcdef0123456789abcdef0123456789")
    'objects/ab/abcdef0123456789abcdef0123456789'
    """
    return f"{OBJECTS}/{content_hash[:2]}/{content_hash}"


def recipe_key(address: str) -> str:
    """The key of a table's recipe in the mirror."""
    return f"{RUNS}/{address}/{RECIPE}"


def kept_key(run: str, name: str) -> str:
    """The key of `name`, a JSON file beside the tables of a run, in the mirror."""
    return f"{RUNS}/{run}/{name}"


def kind_of(table: str, name: str) -> str:
    """The kind of a run's file: rows and what belongs to them, weights, or optimizer state.

    >>> kind_of("updates", "files/update/optimizer/rank-0.bin")
    'optimizer state'
    >>> kind_of("updates", "part-00000.parquet")
    'rows'
    """
    if table != UPDATES.name or "/" not in name:
        return ROWS
    if "/optimizer/" in name:
        return OPTIMIZER
    return WEIGHTS


# --- who owns a name -------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """The run that a name in the mirror stands for."""

    id: str
    version: int
    host: str
    at: float

    @classmethod
    def new(cls) -> Owner:
        """An owner with a random id, of this code's schema version, on this machine, as of now."""
        return cls(uuid.uuid4().hex, VERSION, socket.gethostname(), time.time())

    def as_json(self) -> bytes:
        """The owner as JSON, as a mirror stores it and `owner_of` reads it."""
        return json.dumps(vars(self), indent=1).encode()


def owner_of(bucket: ObjectStore, run: str) -> Owner | None:
    """The run that has this name in the mirror; None if there is none.

    Raises ValueError for an invalid name, or a run written with another version of the schema;
    Damaged for an object that names no run.
    """
    key = kept_key(check_run_name(run), OWNER)
    content = read_json(bucket, key)
    if content is None:
        return None
    expected = {"id": str, "version": int, "host": str, "at": float}
    if {name: type(value) for name, value in content.items()} != expected:
        raise Damaged(f"{key} in the mirror does not name a run: remove it, then push again")
    owner = Owner(**content)
    if not HASH.fullmatch(owner.id):
        raise Damaged(f"{key} in the mirror does not name a run: remove it, then push again")
    if owner.version != VERSION:
        raise ValueError(
            f"run {run!r} in the mirror has version {owner.version} of the schema, this code"
            f" version {VERSION}: use the code that pushed it, or push it again under another name"
        )
    return owner


# --- reading and conditional writing ---------------------------------------------------------


def read(bucket: ObjectStore, key: str) -> tuple[bytes, dict[str, str]] | None:
    """A small object, and the marks by which a conditional write recognises it; None if absent.

    Raises Damaged for an object of more than MOST_BYTES, which no push can have written.
    """
    import obstore

    try:
        answer = obstore.get(bucket, key)
    except FileNotFoundError:
        return None
    if answer.meta["size"] > MOST_BYTES:
        raise Damaged(f"{key} in the mirror has {answer.meta['size']} bytes: it is no JSON of ours")
    marks = {
        name: value
        for name, value in (("e_tag", answer.meta["e_tag"]), ("version", answer.meta["version"]))
        if value is not None
    }
    return bytes(answer.bytes()), marks


def read_json(bucket: ObjectStore, key: str) -> dict[str, Any] | None:
    """The JSON object at a key, or None if there is none. Raises Damaged for anything else."""
    stored = read(bucket, key)
    if stored is None:
        return None
    return parse_json(key, stored[0])


def parse_json(key: str, data: bytes) -> dict[str, Any]:
    """The JSON object in `data`, which came from `key`. Raises Damaged if it is something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Damaged(f"{key} in the mirror is damaged: it holds no JSON object")
    return value


def create(bucket: ObjectStore, key: str, data: bytes) -> bool:
    """Write an object unless there is one; returns False if there is one with other data.

    Of racing callers with different data, one wins. An object with the same data may be our own: a
    client that retries after a late response finds what its first request wrote.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

    for remaining in reversed(range(MOST_TRIES)):
        try:
            obstore.put(bucket, key, data, mode="create")
            return True
        except (AlreadyExistsError, PreconditionError):
            return bytes(obstore.get(bucket, key).bytes()) == data
        except GenericError:
            # S3 answers 409 to one of two concurrent writes: possibly neither has won yet
            if not remaining:
                raise
            time.sleep(0.05 * (MOST_TRIES - remaining))
    raise AssertionError("the last try returns or raises")


def replace(bucket: ObjectStore, key: str, data: bytes, marks: dict[str, Any]) -> bool:
    """Overwrite the object that `read` marked; returns False if it was replaced meanwhile."""
    import obstore
    from obstore.exceptions import PreconditionError

    try:
        obstore.put(bucket, key, data, mode=marks)  # type: ignore[arg-type]
    except PreconditionError:
        return False
    except NotImplementedError:  # a folder
        obstore.put(bucket, key, data)
    return True


# --- what a mirror may say -------------------------------------------------------------------


def addresses(bucket: ObjectStore, run: str) -> tuple[list[str], list[str]]:
    """The tables of a run in the mirror, and the names of the JSON files beside them.

    Raises Damaged for a key that no push writes.
    """
    import obstore

    top = f"{RUNS}/{check_run_name(run)}/"
    tables = []
    kept = []
    for page in obstore.list(bucket, top):
        for entry in page:
            inside = entry["path"].removeprefix(top)
            if KEPT.fullmatch(inside):
                if inside != OWNER:
                    kept.append(inside)
                continue
            address, _, name = entry["path"].removeprefix(f"{RUNS}/").rpartition("/")
            if name != RECIPE or not _is_address_of(run, address):
                raise Damaged(
                    f"{entry['path']} in the mirror is no table of run {run!r}, and no push writes"
                    " such a key: remove it there"
                )
            tables.append(address)
    return tables, kept


def _is_address_of(run: str, address: str) -> bool:
    if UNSAFE.search(address) or not _is_inside(address):
        return False
    try:
        at = Address.parse(address)
    except ValueError:
        return False
    return at.run == run and str(at) == address and at.table in TABLES


def _is_inside(path: str) -> bool:
    """Whether a path stays below the folder that it is appended to."""
    return path == str(PurePosixPath(path)) and not {"..", "."} & set(path.split("/"))


def check_recipe(address: str, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe from a mirror, which anybody may have written, unless it could do harm here.

    Raises Damaged if it lacks one of the published parts, has another kind than its address says or
    another seal, or names a file outside its table's folder.
    """
    where = f"{recipe_key(address)} in the mirror"
    if not recipe.keys() >= PUBLISHED or not isinstance(recipe["contents"], dict):
        raise Damaged(f"{where} is damaged: it is no recipe")
    kinds = {"num_rows": int, "content_hash": str, "table": str}
    if any(type(recipe[name]) is not kind for name, kind in kinds.items()):
        raise Damaged(f"{where} is damaged: it is no recipe")
    if not isinstance(recipe.get("started_at", 0.0), int | float):
        raise Damaged(f"{where} is damaged: it does not say when its table was made")
    if recipe.get(SEAL) != seal_of(recipe):
        raise Damaged(f"{where} is not what was pushed: its bytes changed")
    if recipe["table"] != Address.parse(address).table:
        raise Damaged(f"{where} is the recipe of a table {recipe['table']!r}")
    for name, entry in recipe["contents"].items():
        if not _is_file_of_a_table(name):
            raise Damaged(f"{where} names the file {name!r}, which no table has")
        expected = {"bytes": int, "hash": str, "mtime_ns": int}
        if not isinstance(entry, dict) or any(
            type(entry.get(key)) is not kind for key, kind in expected.items()
        ):
            raise Damaged(f"{where} does not say what {name} holds")
        if not HASH.fullmatch(entry["hash"]) or not 0 <= entry["bytes"] < 1 << 60:
            raise Damaged(f"{where} does not say what {name} holds")
    return recipe


def _is_file_of_a_table(name: str) -> bool:
    """Whether this is a part, or a file below `files`.

    >>> [_is_file_of_a_table(name) for name in ("part-00000.parquet", "files/a/b", "files/../x")]
    [True, True, False]
    """
    if UNSAFE.search(name) or len(os.fsencode(name)) > 1000 or not _is_inside(name):
        return False
    return bool(PART.fullmatch(name)) or name.startswith(f"{FILES}/")


def without_marks(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without its seal and without the marks of files that were removed."""
    contents = {
        name: {key: value for key, value in entry.items() if key != "cleaned"}
        for name, entry in recipe["contents"].items()
    }
    return {**{key: value for key, value in recipe.items() if key != SEAL}, "contents": contents}


assert PART.fullmatch(PARTS.replace("*", "00000"))
