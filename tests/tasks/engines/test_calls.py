"""Several callers of one fleet: their conversations share batches, and none waits for, loses to
or breaks another."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks.engines import fleet_child, pool
from tasks.engines.call_queue import Call, CallQueue
from tasks.engines.child import CALL, DIED, LOT, MORE
from tasks.engines.fleet import Fleet
from tasks.engines.prompt_queues import PromptQueues
from tasks.models.engine import Completion, EngineConfig, EngineDied, Policy, Sampling, never
from tasks.rollouts.dialogue import Dialogue
from tests.support.conversations import SAMPLING, TALK, Library
from tests.support.engine_threads import EngineThread, HeldEngine, scripted_fleet
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
    return ids(weighed(fleet, folder, [f"{i}" for i in range(9)]))


def weighed(fleet: Fleet, folder: Path, names: list[str]) -> Iterator[Any]:
    """Rows of prompts with these ids that are given their reply."""
    said = {"role": "r", "messages": [{"role": "user", "content": "a"}], "search_turns": None}
    asked = [
        {**said, "prompt_id": name, "between_token_ids": [], "reply_token_ids": [20]}
        for name in names
    ]
    return fleet.reply_logprobs(asked, policy(folder), Dialogue())


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


class Fading(HeldEngine):
    """Is lost, as with its node, once it has prompts and `go` is set."""

    def __init__(self, go: threading.Event):
        super().__init__(red, set())
        self.go = go

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        if self._queue:
            self.go.wait(60)
            raise EngineDied("the node is gone")
        return super().poll(interrupted)


@pytest.mark.parametrize("work", ["rollouts", "log-probabilities"])
def test_what_a_lost_engine_had_is_done_by_others_that_had_finished(monkeypatch, folder, work):
    """Engine 0 is lost when engine 1 has done all that was left; the new engine 0 never comes up,
    as long as its node has no room."""
    go = threading.Event()
    started: list[int] = []

    def child(_: Any, number: int, log_dir: Path) -> EngineThread:
        started.append(number)
        if number == 1:
            return EngineThread(HeldEngine(red, set()), number, log_dir)
        if started.count(0) == 1:
            lost = EngineThread(Fading(go), number, log_dir)
            lost.is_lost = True
            return lost
        return Silent(folder)  # type: ignore[return-value]

    fleet = scripted_fleet(monkeypatch, folder, lambda _: HeldEngine(red, set()), num_engines=2)
    monkeypatch.setattr(pool, "Child", child)
    found: list[str] = []
    names = [f"{number} now" for number in range(40)]

    def collect() -> None:
        rows = ask(fleet, folder, *names)
        if work != "rollouts":
            rows = weighed(fleet, folder, names)
        found.extend(row["prompt_id"] for row in rows)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while 1 not in fleet._pool._idle and time.monotonic() < until:
        time.sleep(0.01)
    go.set()
    thread.join(60)
    fleet.close()
    assert sorted(found) == sorted(names) and started.count(0) == 2


def test_prompts_go_to_engines_that_ask_for_them_only(monkeypatch, folder):
    """Engine 1 waits when engine 0 is lost with its prompts: it is only told of the call."""
    monkeypatch.setattr(pool, "Child", lambda *_: Silent(folder))
    queue = CallQueue()
    engines = pool.Pool(EngineConfig(model=str(folder), max_model_len=64), 2, folder, 0, queue)
    prompts = [{"prompt_id": name, "messages": []} for name in "ab"]
    queues = PromptQueues([prompts, []], 0, engines.awake)
    settings = {"work": "roll_out", "policy": policy(folder)}
    under_way = Call(0, settings, queues, 1, {("a", 0), ("b", 0)})
    queue.join(under_way)
    queue.begin(under_way)
    engines.announce(under_way)
    lost, waits = (engines.children[number].pipe for number in (0, 1))
    lost.says = [(MORE,), (DIED, "the node is gone")]
    waits.says = [(MORE,), (MORE,)]
    engines.hear(0)
    engines.hear(1)
    engines.children[0].is_lost = True
    engines.hear(0)
    assert [kind for kind, *_ in lost.heard] == [CALL, LOT]
    assert [kind for kind, *_ in waits.heard] == [CALL, LOT, CALL]
    engines.hear(1)
    assert waits.heard[-1] == (LOT, 0, [(prompt, [0]) for prompt in prompts])


class Silent:
    """An engine's process, and its pipe, that says only what `says` has."""

    is_lost = False
    found_no_node = False

    def __init__(self, folder: Path):
        self.pipe: Any = self
        self.log_file = folder / "log"
        self.heard: list[Any] = []
        self.says: list[Any] = []
        self._own, self._other = os.pipe()

    def fileno(self) -> int:
        return self._own

    def send(self, message: Any) -> None:
        self.heard.append(message)

    def recv(self) -> Any:
        return self.says.pop(0)

    def ended(self) -> str:
        return "it ended"

    def close(self) -> None:
        for descriptor in (self._own, self._other):
            with contextlib.suppress(OSError):
                os.close(descriptor)


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
