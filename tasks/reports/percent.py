"""How a share is written wherever people read it: pages, reports, findings, the terminal."""

from __future__ import annotations


def percent(part: float, whole: float = 1) -> str:
    """A share in percent, with more digits near 0 and 100; "none" if `whole` is 0.

    In SQL, the macro `percent(share)` does the same.

    >>> percent(1, 3), percent(1, 32), percent(999, 1000), percent(0, 4), percent(0, 0)
    ('33%', '3.1%', '99.9%', '0%', 'none')
    >>> percent(0.0042), percent(1)
    ('0.42%', '100%')
    """
    if not whole:
        return "none"
    share = 100 * (part / whole)
    if 0 < share < 1:
        return f"{share:.2g}%"
    is_extreme = share < 10 or share > 90
    if is_extreme and share % 100:
        return f"{share:.1f}%"
    return f"{share:.0f}%"
