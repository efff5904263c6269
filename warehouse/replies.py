"""A cache of paid replies in the store.

A request that was answered once costs nothing again, in any run.

It lies in `<store>/replies.sqlite`. Several processes may read and write it, and a kill loses
nothing that was stored. Remove the file to clear the cache.
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
    key text primary key, text text not null, finish_reason text not null,
    num_prompt_tokens integer, num_completion_tokens integer, cost real not null, model text,
    run text not null, at real not null
)
"""

# what a run paid for requests that brought no usable reply
LOSSES = "create table if not exists losses (run text not null, cost real not null, at real)"


@dataclass(frozen=True)
class PaidReply:
    """The reply to a request. `cost` is in the currency of the prices in force at the time."""

    text: str
    finish_reason: str
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    cost: float
    model: str | None


class PaidReplies:
    """The cache under a store's root.

    It uses SQLite's rollback journal, not WAL: a store may lie on a network disk.
    """

    def __init__(self, root: Path):
        self.path = root / FILE

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
            connection.execute(TABLE)
            connection.execute(LOSSES)
            yield connection

    def find(self, keys: Iterable[str]) -> dict[str, PaidReply]:
        """The replies to those of `keys`, the keys of requests, that are cached."""
        keys = list(keys)
        replies = {}
        with self._open() as connection:
            for i in range(0, len(keys), AT_ONCE):
                some = keys[i : i + AT_ONCE]
                query = f"""
                    select key, text, finish_reason, num_prompt_tokens, num_completion_tokens,
                        cost, model
                    from replies where key in ({",".join("?" * len(some))})
                """
                for key, *values in connection.execute(query, some):
                    replies[key] = PaidReply(*values)
        return replies

    def put(self, replies: dict[str, PaidReply], run: str) -> None:
        """Store the replies that a run paid for, by their requests' keys, all or none. A request
        that has a reply keeps it."""
        now = time.time()
        rows = [(key, *astuple(reply), run, now) for key, reply in replies.items()]
        with self._open() as connection:
            connection.executemany(
                "insert or ignore into replies values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )

    def lose(self, cost: float, run: str) -> None:
        """Note what a run paid for requests that brought no usable reply."""
        with self._open() as connection:
            connection.execute("insert into losses values (?, ?, ?)", (run, cost, time.time()))

    def spent(self, run: str) -> float:
        """What a run paid, with a reply or without."""
        query = """
            select coalesce(sum(cost), 0) from (
                select cost from replies where run = :run
                union all
                select cost from losses where run = :run
            )
        """
        with self._open() as connection:
            return connection.execute(query, {"run": run}).fetchone()[0]
