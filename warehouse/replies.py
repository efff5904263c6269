"""Replies that were paid for, kept in the store: the same request costs nothing again, in any run.

`<store>/replies.sqlite`; several processes may read and write it, and a kill loses nothing that was put in. Remove the
file to forget them all.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

FILE = "replies.sqlite"
AT_ONCE = 500
TABLE = """
create table if not exists replies (
    key text primary key, text text not null, finish_reason text not null, num_prompt_tokens integer,
    num_completion_tokens integer, cost real not null, model text, run text not null, at real not null
)
"""


@dataclass(frozen=True)
class PaidReply:
    """What a request was answered. `cost` is in the currency of the prices it was asked at."""

    text: str
    finish_reason: str
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    cost: float
    model: str | None


class PaidReplies:
    """The replies under a store's root. The rollback journal and not WAL: a store may lie on a network disk."""

    def __init__(self, root: Path):
        self.path = root / FILE

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
            connection.execute(TABLE)
            yield connection

    def find(self, keys: Iterable[str]) -> dict[str, PaidReply]:
        """Those of `keys` that were answered."""
        wanted, found = list(keys), {}
        with self._open() as connection:
            for i in range(0, len(wanted), AT_ONCE):
                some = wanted[i : i + AT_ONCE]
                marks = ",".join("?" * len(some))
                query = "select key, text, finish_reason, num_prompt_tokens, num_completion_tokens, cost, model"
                for key, *values in connection.execute(f"{query} from replies where key in ({marks})", some):
                    found[key] = PaidReply(*values)
        return found

    def put(self, replies: dict[str, PaidReply], run: str) -> None:
        """Keep replies, all or none; of two to one request the first stays."""
        now = time.time()
        rows = [(key, *astuple(reply), run, now) for key, reply in replies.items()]
        with self._open() as connection:
            connection.executemany("insert or ignore into replies values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def spent(self, run: str) -> float:
        """What the replies that a run asked for have cost."""
        with self._open() as connection:
            return connection.execute("select coalesce(sum(cost), 0) from replies where run = ?", [run]).fetchone()[0]
