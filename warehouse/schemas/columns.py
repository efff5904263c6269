"""What a table is described by: types, columns, schemas; and the register of all tables."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

STRING, INT, LONG, FLOAT, BOOL = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
STRINGS, IDS, LOGPROBS = pa.list_(STRING), pa.list_(INT), pa.list_(pa.float32())
NUMBERS = pa.map_(STRING, FLOAT)


@dataclass(frozen=True)
class Column:
    """One column; `nulls` says what a null means, and an empty string that there are none."""

    name: str
    type: pa.DataType
    meaning: str
    nulls: str = ""


@dataclass(frozen=True)
class Schema:
    """A table: one row is one `grain`, and `key` names the columns that make it unique within its address."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        fields = [
            pa.field(c.name, c.type, nullable=bool(c.nulls), metadata={"meaning": c.meaning, "nulls": c.nulls})
            for c in self.columns
        ]
        return pa.schema(fields, metadata={"table": self.name, "grain": self.grain, "key": ",".join(self.key)})


TABLES: dict[str, Schema] = {}


def define(name: str, grain: str, key: str, *columns: Column) -> Schema:
    """A schema, entered into the register; `key` names its columns, separated by blanks."""
    TABLES[name] = Schema(name, grain, tuple(key.split()), columns)
    return TABLES[name]
