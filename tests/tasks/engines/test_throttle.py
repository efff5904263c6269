"""How fast requests are sent to an endpoint: worked by hand, with clocks that a test sets."""

from types import SimpleNamespace

import pytest

from tasks.engines.endpoint import ChatEndpoint
from tasks.engines.throttle import Bucket, Concurrency, Throttle


def ended(concurrency: Concurrency, count: int, outcome="served", started=0.0, seconds=1.0) -> int:
    for _ in range(count):
        concurrency.ended(outcome, started, started + seconds)
    return concurrency.limit


def test_concurrency_grows_by_one_after_as_many_replies_as_may_be_in_flight():
    concurrency = Concurrency(most=10)
    assert concurrency.limit == 8
    assert [ended(concurrency, 7), ended(concurrency, 1)] == [8, 9]
    assert [ended(concurrency, 8), ended(concurrency, 1)] == [9, 10]
    assert ended(concurrency, 100) == 10
    assert Concurrency(most=3).limit == 3


def test_an_overload_halves_it_once_for_all_that_were_in_flight():
    """The first overload is reported at 5 s; requests that began before then add nothing. The
    next begins at 6 s."""
    concurrency = Concurrency(most=64)
    concurrency.ended("overload", started=1, now=5)
    for started in (0, 2, 4.9):
        concurrency.ended("overload", started, now=7)
    assert concurrency.limit == 4
    concurrency.ended("overload", started=6, now=8)
    assert concurrency.limit == 2
    for at in (9, 10, 11):
        concurrency.ended("overload", at, at)
    assert concurrency.limit == 1


def test_single_faults_do_not_slow_it_and_a_window_that_is_mostly_faults_halves_it():
    concurrency = Concurrency(most=64)
    ended(concurrency, 4, "fault")
    assert ended(concurrency, 4) == 9
    ended(concurrency, 4)
    assert ended(concurrency, 5, "fault") == 4
    assert ended(concurrency, 8, "fault") == 2


def test_replies_three_times_as_slow_as_the_best_window_lower_it_by_a_fifth():
    concurrency = Concurrency(most=64)
    assert ended(concurrency, 8, seconds=1) == 9
    assert ended(concurrency, 9, seconds=3) == 10
    assert ended(concurrency, 10, seconds=3.1) == 8
    concurrency.begin()  # another stage's, with longer replies
    assert ended(concurrency, 8, seconds=9) == 9


def test_a_rate_limit_saves_up_ten_seconds_and_may_be_overdrawn():
    """120 a minute are 2 a second, so 20 are saved up."""
    bucket = Bucket(per_minute=120, now=0)
    assert bucket.wait_s(20, now=0) == 0
    bucket.take(20)
    assert bucket.wait_s(3, now=0) == 1.5
    assert bucket.wait_s(3, now=1) == 0.5
    bucket.take(12)  # 2 - 12 = -10: a reply took more than its estimate
    assert bucket.wait_s(1, now=1) == 5.5
    assert bucket.wait_s(50, now=1) == 15  # more than is ever saved up: wait for 20
    assert bucket.wait_s(20, now=1000) == 0
    bucket.take(20)
    assert bucket.wait_s(1, now=1000) == 0.5


def test_a_slow_rate_lets_single_requests_through():
    """3 a minute: one is saved up, the next comes after 20 s."""
    bucket = Bucket(per_minute=3, now=0)
    assert bucket.wait_s(1, now=0) == 0
    bucket.take(1)
    assert bucket.wait_s(1, now=0) == pytest.approx(20)


def test_the_gate_counts_requests_tokens_and_pauses(monkeypatch):
    monkeypatch.setattr("tasks.engines.throttle.time", SimpleNamespace(monotonic=lambda: 5.0))
    api = ChatEndpoint(
        url="http://h/v1", api_key_env="", requests_per_minute=6, tokens_per_minute=600
    )
    throttle = Throttle(api)
    started = throttle.enter(40)
    assert started == 5
    assert throttle._wait_s(40, started) == pytest.approx(10)  # one request in ten seconds
    throttle.leave("served", started, num_more_tokens=160)  # of the 100 saved up, 200 are taken
    assert throttle._wait_s(40, started) == pytest.approx(14)
    throttle.leave("overload", started, pause_s=30)
    assert throttle._wait_s(40, started) == pytest.approx(30)
    throttle.stop()
    assert throttle.enter(1) is None
