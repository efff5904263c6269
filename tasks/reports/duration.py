"""How durations are written."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A measured duration, to its second largest unit.

    >>> duration(9.94), duration(75.2), duration(3700), duration(200_000)
    ('9.9 s', '1 min 15 s', '1 h 01 min', '2 d 07 h')
    """
    if seconds < 59.95:  # from here on it would read "60.0 s"
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def roughly(seconds: float) -> str:
    """An estimated duration, to the minute.

    >>> roughly(42), roughly(200), roughly(7500)
    ('42 s', '3 min', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
