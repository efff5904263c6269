"""Slow parts of pages are computed on threads that give way to pages."""

import os
import sys
import threading

import pytest

from flows.app.viewer.behind import NICENESS, WORKERS, Behind


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the niceness of a thread")
def test_slow_parts_give_way_to_pages_and_pages_do_not(store):
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def niceness(_lake) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert Behind(store).compute(niceness) == max(before, NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_statement_runs_on_the_thread_that_asks(store):
    slow_parts = Behind(store)
    sql = "select current_setting('threads') as threads"
    answer = slow_parts.compute(lambda lake: lake.query("", sql))
    assert answer.rows == [{"threads": 1}]


def test_slow_parts_of_two_requests_are_computed_side_by_side(store):
    slow_parts = Behind(store)
    both = threading.Barrier(WORKERS)
    waiting = [
        threading.Thread(target=slow_parts.compute, args=(lambda _lake: both.wait(30),))
        for _ in range(WORKERS)
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(60)
    assert not both.broken


def test_an_error_is_that_of_the_request_and_the_next_one_is_computed(store):
    slow_parts = Behind(store)

    def fail(_lake) -> None:
        raise ValueError("no such iteration")

    for _ in range(WORKERS + 1):
        with pytest.raises(ValueError, match="no such iteration"):
            slow_parts.compute(fail)
    assert slow_parts.compute(lambda lake, number: number, 3) == 3
