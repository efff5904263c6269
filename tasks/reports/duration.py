"""How a time is written on the terminal."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(200), duration(7500)
    ('42 s', '3 min', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
