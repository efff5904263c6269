"""Limits on how fast requests go to an endpoint: adaptive concurrency, rate limits, and the pauses
that the endpoint demands.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Literal

from tasks.engines.endpoint import ChatEndpoint

Outcome = Literal["served", "fault", "overload"]
START = 8
WINDOW = 8
SLOWER = 3.0  # a window this many times as long as the best: requests queue at the server
BURST_S = 10.0  # seconds of a rate limit that may be saved up


class Concurrency:
    """Limits the requests in flight.

    It increases them additively and decreases them multiplicatively (Chiu and Jain 1989).

    A window has as many replies as the limit, but at least `WINDOW`. A good window raises the limit
    by one; a window whose replies took over `SLOWER` times as long as those of the best lowers it
    by a fifth; a window in which most requests failed halves it. An overload (429, 503, a time-out)
    halves it immediately, but only once for all requests then in flight. Single failures do not
    lower it: a server that fails at random does no better with fewer requests.
    """

    def __init__(self, most: int):
        self.limit = min(START, most)
        self._most = most
        self._halved_at = float("-inf")
        self.begin()

    def begin(self) -> None:
        """Forget how long replies take: the next ones may be of another kind."""
        self._best = math.inf  # mean seconds of a reply in the best window
        self._begin_window()

    def _begin_window(self) -> None:
        self._num = 0
        self._num_faults = 0
        self._seconds = 0.0

    def ended(self, outcome: Outcome, started: float, now: float) -> None:
        """Record how a request ended; times are in seconds of the same clock."""
        if outcome == "overload":
            if started >= self._halved_at:
                self.limit = max(1, self.limit // 2)
                self._halved_at = now
                self._begin_window()
            return
        self._num += 1
        if outcome == "fault":
            self._num_faults += 1
        else:
            self._seconds += now - started
        if self._num >= max(WINDOW, self.limit):
            self._end_window()
            self._begin_window()

    def _end_window(self) -> None:
        num_served = self._num - self._num_faults
        if self._num_faults > num_served:
            self.limit = max(1, self.limit // 2)
            return
        mean = self._seconds / num_served
        if mean > SLOWER * self._best:
            self.limit = max(1, self.limit * 4 // 5)
        else:
            self.limit = min(self._most, self.limit + 1)
        self._best = min(self._best, mean)


class Bucket:
    """A token bucket for a rate limit. Costs that are known only afterwards may overdraw it."""

    def __init__(self, per_minute: float, now: float):
        self._rate = per_minute / 60
        self._most = max(1.0, self._rate * BURST_S)
        self._level = self._most
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken.

        An amount above the bucket's capacity may be taken when the bucket is full.
        """
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self._most) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Take `amount` without waiting; the level may fall below 0."""
        self._level -= amount


class Throttle:
    """The gate that every request of every thread goes through."""

    def __init__(self, endpoint: ChatEndpoint):
        now = time.monotonic()
        self.concurrency = Concurrency(endpoint.max_concurrency)
        self._requests: Bucket | None = None
        if endpoint.requests_per_minute is not None:
            self._requests = Bucket(endpoint.requests_per_minute, now)
        self._tokens: Bucket | None = None
        if endpoint.tokens_per_minute is not None:
            self._tokens = Bucket(endpoint.tokens_per_minute, now)
        self._num_in_flight = 0
        self._paused_until = now
        self._changed = threading.Condition()
        self._stopped = threading.Event()

    def enter(self, num_tokens: int) -> float | None:
        """Wait until a request of about `num_tokens` may be sent.

        Returns the time at which it may be sent; None after `stop`.
        """
        with self._changed:
            while not self._stopped.is_set():
                now = time.monotonic()
                wait = self._wait_s(num_tokens, now)
                if wait <= 0:
                    self._num_in_flight += 1
                    for bucket, amount in self._amounts(num_tokens):
                        bucket.take(amount)
                    return now
                self._changed.wait(wait)
        return None

    def _wait_s(self, num_tokens: int, now: float) -> float:
        if self._num_in_flight >= self.concurrency.limit:
            return 60.0  # `leave` wakes it
        waits = [bucket.wait_s(amount, now) for bucket, amount in self._amounts(num_tokens)]
        return max([self._paused_until - now, *waits])

    def _amounts(self, num_tokens: int) -> Iterator[tuple[Bucket, float]]:
        """The configured rate limits, each with the amount that a request takes."""
        if self._requests is not None:
            yield self._requests, 1
        if self._tokens is not None:
            yield self._tokens, num_tokens

    def leave(
        self, outcome: Outcome, started: float, num_more_tokens: int = 0, pause_s: float = 0
    ) -> None:
        """Report how a request ended.

        `num_more_tokens` are its tokens beyond the estimate; `pause_s` is the pause that the server
        asks for.
        """
        with self._changed:
            now = time.monotonic()
            self._num_in_flight -= 1
            self.concurrency.ended(outcome, started, now)
            self._paused_until = max(self._paused_until, now + pause_s)
            if self._tokens is not None:
                self._tokens.take(num_more_tokens)
            self._changed.notify_all()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or until `stop`."""
        self._stopped.wait(seconds)

    def begin(self) -> None:
        """Allow requests again after `stop`, and forget how long replies take."""
        self._stopped.clear()
        with self._changed:
            self.concurrency.begin()

    def stop(self) -> None:
        """Start no further requests."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
