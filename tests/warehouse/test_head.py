"""A store has one head among machines; flows of one machine share it."""

from __future__ import annotations

import json
import time

import pytest

from warehouse import head
from warehouse.head import HEAD, head_of
from warehouse.store import Store


def note(store: Store, host: str, age_s: float) -> None:
    told = {"host": host, "boot": "b", "pid": 7, "at": time.time() - age_s}
    (store.root / HEAD).write_text(json.dumps(told))


def test_a_second_machine_is_refused_by_name_while_the_first_works(store: Store) -> None:
    note(store, "other", age_s=30)
    before = (store.root / HEAD).read_bytes()
    with (
        pytest.raises(RuntimeError, match=r"head already: process 7 on other, seen \d+ s ago"),
        head_of(store),
    ):
        pytest.fail("it may not begin")
    assert (store.root / HEAD).read_bytes() == before


def test_a_machine_that_was_lost_is_forgotten(store: Store) -> None:
    note(store, "other", age_s=91)
    with head_of(store):
        assert json.loads((store.root / HEAD).read_text())["host"] != "other"


def test_flows_of_one_machine_share_it_and_a_damaged_note_does_not_matter(store: Store) -> None:
    (store.root / HEAD).write_text("{")
    with head_of(store), head_of(Store(store.root)):
        pass


def test_of_two_that_begin_at_once_the_last_to_write_stays(store: Store, monkeypatch) -> None:
    # the other machine writes between this one's note and its second look
    monkeypatch.setattr(head.time, "sleep", lambda _: note(store, "other", age_s=0))
    with pytest.raises(RuntimeError, match="on other"), head_of(store):
        pytest.fail("it may not begin")


def test_it_says_again_and_again_that_it_works(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(head, "BEAT_S", 0.01)
    with head_of(store):
        first = json.loads((store.root / HEAD).read_text())["at"]
        until = time.monotonic() + 30
        while json.loads((store.root / HEAD).read_text())["at"] == first:
            assert time.monotonic() < until
            time.sleep(0.01)
