"""Convert the values of a corpus's columns, whatever their type in the file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime

FIRST_SECONDS = 100_000_000  # in March 1973; smaller numbers are years or days, such as 20220209
FIRST_MILLISECONDS = 100_000_000_000


def first_value(fields: Mapping[str, object], names: tuple[str, ...]) -> object:
    """The value of the first of `names` that `fields` has and that is not None or blank; else None.

    >>> first_value({"text": " ", "contents": "Ada", "id": 0}, ("text", "contents"))
    'Ada'
    """
    return next((fields[name] for name in names if not _is_blank(fields.get(name))), None)


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str | bytes) and not value.strip())


def to_number(value: object) -> float | None:
    """A finite number, or None for any other value."""
    if isinstance(value, str | bytes):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    if math.isfinite(number):
        return number
    return None


def to_date(value: object) -> str | None:
    """An ISO 8601 date, or None for a value that is not one.

    A date that names a zone is converted to UTC, so that dates of one precision sort as text. A
    number of more than eight digits counts as seconds since 1970, one of twelve or more as
    milliseconds.

    >>> to_date("2022-02-09T10:00:00+02:00"), to_date(b"2022-02-09")
    ('2022-02-09T08:00:00', '2022-02-09')
    >>> to_date(2022), to_date(20220209), to_date(1644364800), to_date("last week")
    ('2022', '2022-02-09', '2022-02-09T00:00:00', None)
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, int):
        value = _of_number(value)
    if isinstance(value, str) and re.fullmatch(r"\d{4}(-\d\d)?", value):
        if value[0] in "12":
            return value
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


def _of_number(number: int) -> str | datetime | None:
    """A date that is stored as a number: its digits, or a time since 1970."""
    if number < FIRST_SECONDS:
        return str(number)
    seconds = number if number < FIRST_MILLISECONDS else number / 1000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return None


def to_text(value: object) -> str:
    """A short value as text that can be stored; '' for anything but text and whole numbers."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str | int):
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")
