"""The description of a table.

A table is a TypedDict whose annotations are its columns. `TABLES` is the registry of all tables.

    class Vote(TypedDict):
        judge_rollout_id: Annotated[str, "the rollout that voted"]
        rollout_id: Annotated[str, "the answer"]
        vote: Annotated[int | None, "1 correct, 0 not", "no vote could be read"]
        malformed: WhyMalformed

    VOTES = define(
        "votes", Vote, grain="one of a judge's votes on an answer", key="judge_rollout_id",
        parsed=ReplyColumns("judge_rollout_id", "vote"),
    )

The first note says what the column means, the second what a null means; a column without a second
note is never null. Arrow types follow from the annotations: str, bool, float (64 bits), int (32
bits), `Long` and the other aliases below, list[...], dict[str, float] (a map), and TypedDicts
(structs, whose fields may be null and need no notes).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa

Row = dict[str, Any]  # a row of any table or query

Long = Annotated[int, pa.int64()]
Hash = Annotated[int, pa.uint64()]
Flag = Annotated[int, pa.int8()]
Logprob = Annotated[float, pa.float32()]  # natural
WhyMalformed = Annotated[str | None, "why the reply could not be read", "the reply was read"]

ARROW = {str: pa.string(), int: pa.int32(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True)
class Column:
    """One column; `nulls` says what a null means, and is empty if nulls are not allowed."""

    name: str
    type: pa.DataType
    meaning: str
    nulls: str = ""


@dataclass(frozen=True)
class ReplyColumns:
    """Which columns of a table of parsed replies name a rollout and what was read from its reply.

    `text` is what was read from the rollout's last reply. If one reply yields several rows, `order`
    is the column that orders them.
    """

    rollout: str
    text: str
    order: str | None = None


@dataclass(frozen=True)
class Schema:
    """A table: one row is one `grain`.

    `key` names the columns that make a row unique within its address, and `finite` the columns of
    numbers that are never NaN or infinite.
    """

    name: str
    row: type
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    parsed: ReplyColumns | None = None
    finite: tuple[str, ...] = ()

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema.

        Its metadata say what columns and nulls mean, and name table, grain and key.
        """
        fields = [
            pa.field(
                c.name,
                c.type,
                nullable=bool(c.nulls),
                metadata={"meaning": c.meaning, "nulls": c.nulls},
            )
            for c in self.columns
        ]
        return pa.schema(
            fields, metadata={"table": self.name, "grain": self.grain, "key": ",".join(self.key)}
        )


TABLES: dict[str, Schema] = {}


def define(
    name: str,
    row: type,
    *,
    grain: str,
    key: str,
    parsed: ReplyColumns | None = None,
    finite: str = "",
) -> Schema:
    """Register and return the schema of a TypedDict.

    `key` and `finite` name columns, separated by spaces.

    Raises TypeError for a column without its notes or without an Arrow type, for a key that is not
    a column, and for a column `malformed` without `parsed`, which tells whose reply was malformed.
    """
    columns = tuple(
        _column(f"{name}.{c}", hint) for c, hint in get_type_hints(row, include_extras=True).items()
    )
    names = {c.name for c in columns}
    needed = {*key.split(), *finite.split()}
    if parsed:
        needed |= {parsed.rollout, parsed.text, "malformed"}
    unknown = needed - names
    if unknown:
        raise TypeError(f"table {name} has no column {', '.join(sorted(unknown))}")
    if "malformed" in names and parsed is None:
        raise TypeError(
            f"table {name} has a column malformed: say by `parsed` which rollout's reply was read"
        )
    TABLES[name] = Schema(
        name, row, grain, tuple(key.split()), columns, parsed, tuple(finite.split())
    )
    return TABLES[name]


def _column(name: str, hint: Any) -> Column:
    notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)]
    bare = get_args(hint)[0] if notes else hint
    nullable = get_origin(bare) in (Union, UnionType) and NoneType in get_args(bare)
    if len(notes) != 1 + nullable:
        of_nulls = "what a null means" if nullable else "nothing of nulls"
        raise TypeError(
            f"column {name} has {len(notes)} notes, it needs {1 + nullable}: what it means, and"
            f" {of_nulls}"
        )
    return Column(name.partition(".")[2], _arrow_type(hint, name), *notes)


def _arrow_type(hint: Any, name: str) -> pa.DataType:
    origin = get_origin(hint)
    args = get_args(hint)
    if origin is Annotated:
        for note in hint.__metadata__:
            if isinstance(note, pa.DataType):
                return note
        return _arrow_type(args[0], name)
    if origin in (Union, UnionType):
        (some,) = (a for a in args if a is not NoneType)
        return _arrow_type(some, name)
    if origin is list:
        return pa.list_(_arrow_type(args[0], name))
    if origin is dict:
        return pa.map_(*(_arrow_type(a, name) for a in args))
    if is_typeddict(hint):
        fields = get_type_hints(hint, include_extras=True)
        return pa.struct(
            [(field, _arrow_type(of, f"{name}.{field}")) for field, of in fields.items()]
        )
    if hint not in ARROW:
        raise TypeError(f"column {name}: no Arrow type stands for {hint}")
    return ARROW[hint]
