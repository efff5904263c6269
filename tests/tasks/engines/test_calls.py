"""Several callers of one fleet: their conversations share batches, and none waits for, loses to
or breaks another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks.engines import fleet_child
from tasks.engines.call_queue import Call, CallQueue
from tasks.engines.fleet import Fleet
from tasks.engines.prompt_queues import PromptQueues
from tasks.models.engine import EngineDied, Policy, Sampling
from tasks.rollouts.dialogue import Dialogue
from tests.support.conversations import SAMPLING, TALK, Library
from tests.support.engine_threads import HeldEngine, scripted_fleet
from tests.support.scripted import model_folder

SHORT = Sampling(max_tokens=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("other"), seed=1)


def policy(folder: Path) -> Policy:
    return Policy(id=folder.name, weights=str(folder), content_hash=folder.name)


def ask(
    fleet: Fleet, folder: Path, *contents: str, dialogue: Dialogue | None = None, **settings: Any
) -> Iterator[Any]:
    """Rollouts of one prompt for each of the contents, which are its id as well."""
    prompts: Any = [
        {
            "prompt_id": said,
            "role": "r",
            "messages": [{"role": "user", "content": said}],
            "search_turns": None,
        }
        for said in contents
    ]
    settings = {"progress": lambda *_: None, **settings}
    dialogue = dialogue or Dialogue()
    return fleet.roll_out(
        prompts, policy(folder), SAMPLING if dialogue.search else SHORT, dialogue, **settings
    )


def weigh(fleet: Fleet, folder: Path) -> list[str]:
    """Ids of nine prompts that are given their reply."""
    said = {"role": "r", "messages": [{"role": "user", "content": "a"}], "search_turns": None}
    asked = [
        {**said, "prompt_id": f"{i}", "between_token_ids": [], "reply_token_ids": [20]}
        for i in range(9)
    ]
    return ids(fleet.reply_logprobs(asked, policy(folder), Dialogue()))


def ids(rows: Any) -> list[str]:
    return sorted(row["prompt_id"] for row in rows)


def red(*_: Any) -> str:
    return "red"


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """What each returns or raises."""

    def tried(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(tried, works))


def test_a_call_is_answered_while_anothers_long_conversation_runs(monkeypatch, folder):
    engine = HeldEngine(red, held={"moon"})
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
    first = ask(fleet, folder, "moon", "a", "b")
    assert [next(first)["prompt_id"], next(first)["prompt_id"]] == ["a", "b"]
    (second,) = in_threads(lambda: ids(ask(fleet, folder, "c", "d", "e", "f", "g", seed=5)))
    assert second == ["c", "d", "e", "f", "g"] and "moon" in engine.waiting()[0]
    engine.held.clear()
    assert ids(first) == ["moon"]


def test_rows_are_those_of_the_calls_one_after_the_other(monkeypatch, folder):
    """Two engines, six callers with settings of their own."""

    def reply(_: Any, text: str) -> str:
        return ("red", "a b", "moon...", "sun sea <|im_end|>")[len(text) % 4]

    fleet = scripted_fleet(monkeypatch, folder, lambda _: HeldEngine(reply, set()), num_engines=2)
    contents = ["a b", "a", "a b c", "red", "moon sun", "sea sea", *(f"{i} now" for i in range(20))]

    def work(i: int) -> list[Any]:
        skip = frozenset({("a", 0), ("red", 1)})
        rows = list(ask(fleet, folder, *contents[i:], seed=i, group_size=1 + i % 3, skip=skip))
        return sorted(rows, key=lambda row: row["rollout_id"])

    alone = [work(i) for i in range(6)]
    assert in_threads(*(lambda i=i: work(i) for i in range(6))) == alone
    assert [len(rows) for rows in alone] == [26 - 1, 2 * 25 - 2, 3 * 24 - 1, 23 - 0, 2 * 22, 3 * 21]


def call(
    number: int,
    weights: str = "w",
    content_hash: str = "h",
    adapter: str | None = None,
    work: str = "roll_out",
):
    policy = Policy(id="p", weights=weights, content_hash=content_hash, adapter=adapter)
    return Call(number, {"work": work, "policy": policy}, PromptQueues([[]], 0), 1, set())


def test_who_may_share_the_engines():
    base = call(0)
    adapted = call(1, adapter="x", content_hash="x")
    another = call(2, "v")
    scores = call(3, work="s")
    assert base.mixes_with(call(4)) and base.mixes_with(adapted) and adapted.mixes_with(base)
    assert adapted.mixes_with(call(4, adapter="y", content_hash="y"))
    assert not base.mixes_with(another) and not base.mixes_with(
        call(4, content_hash="rewritten in place")
    )
    assert not base.mixes_with(scores) and not scores.mixes_with(scores)


def test_a_call_that_must_wait_is_not_overtaken():
    line, (first, second, other, later) = CallQueue(), (call(0), call(1), call(2, "v"), call(3))
    for each in (first, second, other, later):
        line.join(each)
    assert not line.may_begin(second)
    for each in (first, second):
        assert line.may_begin(each)
        line.begin(each)
    assert not line.may_begin(other) and not line.may_begin(later)
    line.leave(first)
    assert not line.may_begin(other)
    line.leave(second)
    assert line.may_begin(other) and not line.may_begin(later)
    line.leave(other)
    assert line.may_begin(later)


def test_weights_take_turns_and_so_does_other_work(monkeypatch, folder, other):
    engine = HeldEngine(red, set())
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)

    def sleep() -> list[str]:
        fleet.sleep()
        return []

    works = [lambda at=at: ids(ask(fleet, at, "a", "b", "c", "d", "e")) for at in (folder, other)]
    alone = partial(weigh, fleet, other)
    found = in_threads(*works, alone, *works, sleep, *works, alone, *works)
    five = list("abcde")
    nine = [f"{i}" for i in range(9)]
    assert found == [five, five, nine, five, five, [], five, five, nine, five, five]


@pytest.mark.parametrize(
    ("num_deaths", "ends"), [(1, "with all rows"), (2, "with an error for each")]
)
def test_an_engine_that_dies_under_two_calls(monkeypatch, folder, num_deaths, ends):
    deaths: list[str] = []

    def reply(_: Any, text: str) -> str | None:
        if len(deaths) < num_deaths and "moon" in text:
            deaths.append(text)
            return None
        return "red"

    held = {"moon"}
    fleet = scripted_fleet(monkeypatch, folder, lambda _: HeldEngine(reply, held, width=6))
    both = threading.Barrier(2, action=held.clear)

    def work(*contents: str) -> list[str]:
        rows = ask(fleet, folder, *contents, group_size=2)
        found = [next(rows)]
        both.wait(600)
        return ids([*found, *rows])

    found = in_threads(
        lambda: work("a", "b", "moon", "c"), lambda: work("d", "e", "f", "g", "h moon")
    )
    if ends == "with all rows":
        assert found == [ids_twice("a", "b", "c", "moon"), ids_twice("d", "e", "f", "g", "h moon")]
    else:
        assert [type(error) for error in found] == [
            EngineDied
        ] * 2 and "engine 0 died twice" in str(found[0])
    assert ids(ask(fleet, folder, "moon", "a")) == ["a", "moon"]


def ids_twice(*names: str) -> list[str]:
    return sorted(2 * names)


def test_a_caller_that_stops_early_takes_its_conversations_along_and_no_others(monkeypatch, folder):
    engine = HeldEngine(red, held={"moon", "sun"})
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
    goes = ask(fleet, folder, "a", "moon", "moon moon")
    stays = ask(fleet, folder, "b", "sun", "c")
    assert next(goes)["prompt_id"] == "a" and next(stays)["prompt_id"] == "b"
    goes.close()  # type: ignore[attr-defined]
    assert ids(ask(fleet, folder, "d", "e", "f", "g")) == ["d", "e", "f", "g"]
    assert ["sun" in text for text in engine.waiting()] == [True]
    engine.held.discard("sun")
    assert ids(stays) == ["c", "sun"]


class Broken(Library):
    def search(self, queries, k):
        raise OSError("the index is gone")


def searching(_: Any, text: str) -> str:
    return (
        "<answer> red </answer>"
        if "<information>" in text or "now" in text
        else "<search> moon </search>"
    )


@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_an_error_of_one_call_leaves_the_others_alone(monkeypatch, folder, is_on_gpu):
    engine = HeldEngine(searching, held={"sun"})
    engine.is_on_gpu = is_on_gpu
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
    monkeypatch.setattr(
        fleet_child, "_load_index", {"broken": Broken(), "whole": Library()}.__getitem__
    )
    stays = ask(fleet, folder, "now", "a", "sun", dialogue=TALK, index="whole")
    assert next(stays)["num_searches"] == 0
    with pytest.raises(ValueError, match="there is no index: give one"):
        list(ask(fleet, folder, "b", dialogue=TALK))
    with pytest.raises(RuntimeError, match="the index is gone"):
        list(ask(fleet, folder, *"bcdefgh", dialogue=TALK, index="broken"))
    assert ids(ask(fleet, folder, "b", dialogue=TALK, index="whole")) == ["b"]
    engine.held.clear()
    assert sorted((row["prompt_id"], row["num_searches"]) for row in stays) == [
        ("a", 1),
        ("sun", 1),
    ]


def test_what_is_left_of_a_call_that_failed_is_given_to_no_other(monkeypatch, folder):
    engine = HeldEngine(searching, held=set())
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
    monkeypatch.setattr(fleet_child, "_load_index", lambda _: Broken())
    for after in (
        lambda: weigh(fleet, folder),
        lambda: ids(ask(fleet, folder, *"abc")),
        lambda: fleet.sleep(),
    ):
        with pytest.raises(RuntimeError, match="the index is gone"):
            list(ask(fleet, folder, *"bcdefgh", dialogue=TALK, index="broken"))
        assert after() in ([f"{i}" for i in range(9)], ["a", "b", "c"], None)
    assert len(engine.weights) == 1


@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_searches_of_several_calls_make_the_rows_of_each_alone(monkeypatch, folder, is_on_gpu):
    def made(at_once: bool) -> list[Any]:
        engine = HeldEngine(searching, set())
        engine.is_on_gpu = is_on_gpu
        fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
        dialogues = [TALK, Dialogue(), TALK.model_copy(update={"reasoning": True})]

        def work(i: int) -> list[Any]:
            rows = ask(
                fleet,
                folder,
                "a",
                "b",
                "c",
                dialogue=dialogues[i],
                index=f"{i}",
                group_size=4,
                seed=i,
            )
            return sorted(rows, key=lambda row: row["rollout_id"])

        return (
            in_threads(*(lambda i=i: work(i) for i in range(3)))
            if at_once
            else [work(i) for i in range(3)]
        )

    monkeypatch.setattr(fleet_child, "_load_index", lambda index: Library(f"the sea {index}"))
    found = made(at_once=True)
    assert found == made(at_once=False)
    assert [{row["num_searches"] for row in rows} for rows in found] == [{1}, {0}, {1}]


def test_at_temperature_0_an_engine_is_not_asked_for_a_second_attempt(monkeypatch, folder):
    engine = HeldEngine(red, set())
    fleet = scripted_fleet(monkeypatch, folder, lambda _: engine)
    prompts: Any = [{"prompt_id": "a", "role": "r", "messages": [], "search_turns": None}]
    greedy = Sampling(temperature=0, max_tokens=4)
    assert list(fleet.roll_out(prompts, policy(folder), greedy, Dialogue(), attempt=1)) == []
    assert ids(ask(fleet, folder, "a", attempt=1)) == ["a"]


def test_closing_the_fleet_ends_the_calls_under_way(monkeypatch, folder):
    fleet = scripted_fleet(monkeypatch, folder, lambda _: HeldEngine(red, held={"moon"}))
    rows = ask(fleet, folder, "moon", "a")
    assert next(rows)["prompt_id"] == "a"
    closing = threading.Timer(0.05, fleet.close)
    closing.start()
    with pytest.raises(EngineDied, match="closed during a call"):
        next(rows)
    closing.join()
    assert ids(ask(fleet, folder, "b")) == ["b"]
