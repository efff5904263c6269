"""Convert the values of a corpus's columns, whatever their type in the file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime


def first_value(fields: Mapping[str, object], names: tuple[str, ...]) -> object:
    """The value of the first of `names` that `fields` has and that is not None; else None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def to_number(value: object) -> float | None:
    """A finite number, or None for any other value."""
    if isinstance(value, str | bytes):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def to_date(value: object) -> str | None:
    """An ISO 8601 date, or None for a value that is not one.

    It is in UTC if it names a zone, so that dates of one precision sort as text.

    >>> to_date("2022-02-09T10:00:00+02:00"), to_date(b"2022-02-09")
    ('2022-02-09T08:00:00', '2022-02-09')
    >>> to_date(2022), to_date("last week")
    ('2022', None)
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"\d{4}(-\d\d)?", value)):
        if re.match(r"[12]\d{3}", str(value)):
            return str(value)
        return None
    is_day = False
    if isinstance(value, str):
        is_day = len(value) <= 10
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        if value.tzinfo:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if is_day:
            value = value.date()
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    return None


def to_text(value: object) -> str:
    """A short value as text that can be stored; '' for anything but text and whole numbers."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str | int):
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")
