"""The order in which a selection tests its candidates: each reason counts candidates that passed
every earlier test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

COMMENT = re.compile(r"--[^\n]*")
LITERAL = re.compile(r"'((?:[^']|'')*)'(\s*\|\|)?")
BRANCH = re.compile(r"\bthen\s+(?!'|null\b)", re.IGNORECASE)


def in_order_of_tests(reasons: Iterable[str], params: dict[str, Any]) -> list[str]:
    """The reasons in the order of the tests that give them, as far as the selection's recipe tells.

    `params` are the recipe's parameters, with the text of the query and its limits, which apply
    after it. A reason that is not a text in the query comes from one of its columns: from the first
    branch of the `case` that is a column.

    >>> sql = "case when a then 'malformed: ' || why when b then column when c then 'easy' end"
    >>> params = {"query": {"text": sql}, "limits": [[2, "enough", None]]}
    >>> in_order_of_tests(["enough", "easy", "judge failed", "malformed: no tag"], params)
    ['malformed: no tag', 'judge failed', 'easy', 'enough']
    """
    query = params.get("query") or {}
    text = COMMENT.sub("", query.get("text", "")) if isinstance(query, dict) else ""
    limits = [str(limit[1]) for limit in params.get("limits") or []]
    literals = [(match[1].replace("''", "'"), match) for match in LITERAL.finditer(text)]
    column = BRANCH.search(text)

    def place(reason: str) -> int:
        if reason in limits:
            return len(text) + 1 + limits.index(reason)
        for literal, match in literals:
            if reason == literal or (match[2] and reason.startswith(literal)):
                return match.start()
        return column.start() if column else len(text)

    return sorted(reasons, key=place)
