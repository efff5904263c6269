"""A store has one head among machines; flows of one machine share it."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from tests.support.rows import publish, samples
from warehouse import head
from warehouse.head import HEAD, head_of
from warehouse.schemas import SAMPLES
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


def test_a_machine_that_finds_another_head_when_it_comes_back_publishes_no_more(
    store: Store, monkeypatch
) -> None:
    monkeypatch.setattr(head, "BEAT_S", 0.01)
    place = store.run("r")
    with head_of(store):
        kept = publish(place, "samples", *samples("a"))
        with store.draft(SAMPLES) as begun:
            begun.write(samples("b"))
            told = "has another head now: process 7 on other took over"
            let_other_take_over(store)
            with pytest.raises(RuntimeError, match=told):
                store.publish(begun, kept.address, {"key": "k"})
        for write in (lambda: store.amend(kept.address, {}), lambda: store.draft(SAMPLES)):
            with pytest.raises(RuntimeError, match=told), contextlib.ExitStack() as stack:
                stack.enter_context(write())  # pyright: ignore[reportArgumentType]
    assert store.get(kept.address).recipe == kept.recipe
    assert json.loads((store.root / HEAD).read_text())["host"] == "other"


def let_other_take_over(store: Store) -> None:
    """It has ended since; until the store notices that, it may write over the note."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        note(store, "other", age_s=200)
        try:
            with store.draft(SAMPLES):
                time.sleep(0.01)
        except RuntimeError:
            return
    pytest.fail("it goes on as if it were the head")
