"""A time limit on a whole HTTP request: httpx only limits the wait for each piece of a response."""

from __future__ import annotations

import math
import time
from typing import Any

import httpx


class Remaining:
    """The time until a request must be over, in place of a number of seconds.

    httpx passes a request's read timeout to `socket.settimeout` before it waits for each piece of
    the headers, of an interim response (103) and of the body. `settimeout` converts whatever is not
    a float to a whole number, so each wait ends within a second after the deadline.
    """

    def __init__(self, timeout_s: float) -> None:
        self._until = time.monotonic() + timeout_s

    def __index__(self) -> int:
        """The seconds left, rounded up. Raises httpx.ReadTimeout if there are none."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise httpx.ReadTimeout("the response did not end")
        return math.ceil(left_s)


def within(timeout_s: float) -> dict[str, Any]:
    """The `extensions` of a request that must be over after `timeout_s`. Connecting, sending and
    waiting for a connection may each take that long."""
    seconds = httpx.Timeout(timeout_s).as_dict()
    return {"timeout": {**seconds, "read": Remaining(timeout_s)}}
