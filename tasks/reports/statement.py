"""The SQL statements that reports and the viewer share, with the parameters that they use."""

from __future__ import annotations

import re
from typing import Any

from warehouse.query import SQL

# a parameter, or a comment, whose $names are not parameters
PARAMETER = re.compile(r"^\s*--.*$|\$(\w+)", re.MULTILINE)


def shared_statement(name: str, folder: str = "report") -> str:
    """The text of `warehouse/sql/<folder>/<name>.sql`."""
    return (SQL / folder / f"{name}.sql").read_text(encoding="utf-8")


def parameters_of(sql: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values that a statement uses as parameters: DuckDB rejects any others.

    >>> parameters_of("-- of $run\\nselect $id", {"id": 1, "run": "mine"})
    {'id': 1}
    """
    return {name: values[name] for name in PARAMETER.findall(sql) if name}


def with_values(sql: str, values: dict[str, Any]) -> str:
    """A statement with its parameters inserted, so that it can be run elsewhere.

    >>> with_values("select $id", {"id": "it's"})
    "select 'it''s'"
    """

    def insert(match: re.Match[str]) -> str:
        if match[1]:
            return literal(values[match[1]])
        return match[0]

    return PARAMETER.sub(insert, sql).strip()


def literal(value: Any) -> str:
    """A value as a literal of DuckDB's SQL: null, a boolean, number or string, or a list of these.

    >>> literal([None, True, "it's"])
    "[null, true, 'it''s']"
    """
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"
