"""A cache of paid replies in the store.

A request that was answered once costs nothing when it is repeated, in any run.

The cache lies in `<store>/replies.sqlite`. Several processes may read and write it, and a kill
loses nothing that was stored. Remove the file to clear the cache.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from warehouse.table import Damaged

FILE = "replies.sqlite"
AT_ONCE = 500
TABLE = """
create table if not exists replies (
    key text primary key, text text not null, finish_reason text not null,
    num_prompt_tokens integer, num_completion_tokens integer, cost real not null, model text,
    run text not null, at real not null, rollout_id text
)
"""
COLUMN = "rollout_id"  # that the tables of older stores lack

# what a run paid for requests that brought no usable reply
LOSSES = "create table if not exists losses (run text not null, cost real not null, at real)"
LOSS = "insert into losses values (?, ?, ?)"


@dataclass(frozen=True)
class PaidReply:
    """The reply to a request.

    `cost` is in the currency of the prices in force at the time. `run` and `rollout_id` are those
    of the row for which it was paid; older stores did not note the latter.
    """

    text: str
    finish_reason: str
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    cost: float
    model: str | None
    run: str
    rollout_id: str | None


class PaidReplies:
    """The cache under a store's root.

    It uses SQLite's rollback journal, not WAL: a store may lie on a network disk.
    """

    def __init__(self, root: Path):
        self.path = root / FILE

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection within a transaction.

        Raises Damaged if the file is corrupt, OSError if it cannot be read or written.
        """
        try:
            connecting = contextlib.closing(sqlite3.connect(self.path, timeout=60))
            with connecting as connection, connection:
                connection.execute(TABLE)
                connection.execute(LOSSES)
                _add_column(connection)
                yield connection
        except sqlite3.DatabaseError as problem:
            if type(problem) is sqlite3.DatabaseError:  # errors in using it are subclasses
                raise Damaged(
                    f"{self.path} is damaged ({problem}): move it away and repeat the command."
                    " Published tables keep their replies; others are requested, and paid for,"
                    " again, and what runs spent so far no longer counts towards api.max_cost"
                ) from None
            if isinstance(problem, sqlite3.OperationalError):
                number = errno.ENOSPC if "full" in str(problem) else errno.EIO
                raise OSError(number, str(problem), str(self.path)) from problem
            raise

    def find(self, keys: Iterable[str]) -> dict[str, PaidReply]:
        """The replies to those of `keys`, the keys of requests, that are cached."""
        keys = list(keys)
        replies = {}
        with self._open() as connection:
            for i in range(0, len(keys), AT_ONCE):
                some = keys[i : i + AT_ONCE]
                query = f"""
                    select key, text, finish_reason, num_prompt_tokens, num_completion_tokens,
                        cost, model, run, rollout_id
                    from replies where key in ({",".join("?" * len(some))})
                """
                for key, *values in connection.execute(query, some):
                    replies[key] = PaidReply(*values)
        return replies

    def put(self, replies: dict[str, PaidReply]) -> None:
        """Store replies by their requests' keys, all or none.

        If another process sent the same request at the same time, the reply stored first stays, and
        the cost of the other counts as lost.
        """
        now = time.time()
        with self._open() as connection:
            for key, reply in replies.items():
                *values, rollout_id = astuple(reply)
                added = connection.execute(
                    "insert or ignore into replies values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [key, *values, now, rollout_id],
                )
                if not added.rowcount:
                    connection.execute(LOSS, (reply.run, reply.cost, now))

    def lose(self, cost: float, run: str) -> None:
        """Note what a run paid for requests that brought no usable reply."""
        with self._open() as connection:
            connection.execute(LOSS, (run, cost, time.time()))

    def spent(self, run: str) -> float:
        """The total cost of a run's requests, with or without a usable reply."""
        return self.lost(run) + self._sum("select sum(cost) from replies where run = ?", run)

    def lost(self, run: str) -> float:
        """The cost of a run's requests that brought no usable reply."""
        return self._sum("select sum(cost) from losses where run = ?", run)

    def _sum(self, query: str, run: str) -> float:
        with self._open() as connection:
            return connection.execute(query, (run,)).fetchone()[0] or 0.0


def _add_column(connection: sqlite3.Connection) -> None:
    """Add the column that the table of an older store lacks."""
    columns = {row[1] for row in connection.execute("pragma table_info(replies)")}
    if COLUMN not in columns:
        connection.execute(f"alter table replies add column {COLUMN} text")
