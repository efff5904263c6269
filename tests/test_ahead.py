"""Steps that are played ahead in slices: the same tables as without slices, and nobody waits for the longest reply."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from flows.ahead import Ahead, Step, ahead
from flows.machines import Machines
from flows.profile import MethodSettings
from flows.questions import Answered, answer
from flows.run import Player, Replies, Role, Run
from tasks.ask import readable_tasks
from tasks.engines.base import EngineDied, Policy, Sampling
from tasks.prompt import Malformed, Row, Template
from tasks.read import reads
from tests.support.comparisons import compare_noted
from tests.support.talkers import BASE, Say, Talkers
from warehouse.schemas import ANSWERS, TASKS
from warehouse.store import Place, Store, Table

OTHER = Policy(id="other", weights="other", content_hash="1")


def numbers(*, count: int) -> Iterator[Row]:
    return ({"n": n} for n in range(count))


def readable(reply: str) -> str:
    if "?" in reply:
        raise Malformed("no idea")
    return reply


def role(name: str, text: str, about: Callable[..., Any], into: Any, column: str) -> Role:
    return Role(name, (Template(name, text),), about, Sampling(max_tokens=8), into, reads(column, readable))


ASKER = role("asker", "question {{ n }}", numbers, TASKS, "text").given(count=5)
ANSWERER = role("answerer", "answer {{ task }}", readable_tasks, ANSWERS, "answer")


@ahead
def play(run: Run[Any], step: Place, policy: Policy) -> Replies:
    """Two questions of each of five numbers, two answers to each question."""
    asked = run.ask(step, ASKER, BASE, n=2)
    return run.ask(step, ANSWERER, policy, n=2, tasks=asked.rows)


def talk(role: str, prompt: str, sample: int) -> str:
    """Nobody knows how to ask about 3; the first question about 4 is asked twice."""
    what = prompt.rpartition(" ")[2]
    return "?" if what == "3" else "4a" if what == "4" else what + "ab"[sample]


class Bench:
    """A run whose engines talk, in a store of its own."""

    def __init__(self, store: Store, size: int, say: Say = talk) -> None:
        about = {"models": {"base": "base"}, "engine": {"max_model_len": 64, "dtype": "float32"}, "ahead": size}
        cfg = MethodSettings.model_validate(about)
        self.fleet = Talkers(say, cfg, store.root)
        self.run = Run(cfg, store.run("r"), {"base": BASE}, Machines(self.fleet, self.fleet, None))  # type: ignore[arg-type]
        self.step = self.run.place.iteration(1).phase("training").step(1)

    def play(self, policy: Policy = BASE) -> Replies:
        return play(self.run, self.step, policy)

    @property
    def tables(self) -> dict[str, list[Row]]:
        return {table.address: table.rows() for table in self.step.store.tables("r")}


@pytest.fixture
def stores(tmp_path) -> Callable[[str], Store]:
    return lambda name: Store(tmp_path / name)


def test_every_slice_size_gives_the_same_tables_and_samples_nothing_twice(stores):
    """Also 0's, but for ids: there, prompts are known by their position."""
    benches = {size: Bench(stores(str(size)), size) for size in (100, 3, 1, 0)}
    said = {size: bench.play().rows.arrow["answer"].to_pylist() for size, bench in benches.items()}
    whole, *sliced, plain = benches.values()
    assert len(whole.fleet.asked) == 10 + 2 * 8
    for other in sliced:
        assert other.tables == whole.tables
        assert Counter(other.fleet.asked) == Counter(whole.fleet.asked)
        assert not any(other.step.store.unfinished("r/iter-001/training/step-001/play").parent.iterdir())
    assert said[0] == said[1] and plain.tables.keys() == whole.tables.keys()


def test_a_slice_goes_on_while_another_is_still_asking(store):
    """The first question is only written once the last one is answered. Stage after stage, that would be never."""
    answered = threading.Event()

    def say(role: str, prompt: str, sample: int) -> str:
        if prompt == "question 0":
            assert answered.wait(30)
        if (role, prompt) == ("answerer", "answer 4a"):
            answered.set()
        return talk(role, prompt, sample)

    Bench(store, 1, say).play()
    assert answered.is_set()


def test_slices_take_over_the_first_prompts_from_the_step(store):
    """They may hold whole documents, and each slice has a share of them only."""

    def say(role: str, prompt: str, sample: int) -> str:
        if role == "answerer":
            made.update(path.name for path in (store.root / "unfinished").rglob("prompts.*"))
        return talk(role, prompt, sample)

    made = set[str]()
    Bench(store, 2, say).play()
    assert made == {"prompts.asker-slice", "prompts.answerer", "prompts.answerer-slice"}


def test_slices_compare_in_the_same_process(store, tmp_path):
    """One compares for the four slices with tasks, and another one for the step."""
    (folder := tmp_path / "processes").mkdir()
    compare = partial(compare_noted, folder=str(folder))

    @ahead
    def play(run: Run[Any], step: Place) -> Answered:
        asked = run.ask(step, ASKER, BASE, n=2)
        return answer(run, step, ANSWERER, Player("player", BASE), n=2, compare=compare, tasks=asked.rows)

    bench = Bench(store, 1)
    assert play(bench.run, bench.step).matches.arrow["matched"].to_pylist() == [True] * 16
    assert len(list(folder.iterdir())) == 2


def test_what_slices_sampled_before_a_kill_is_not_sampled_again(store, monkeypatch):
    bench, sampled = Bench(store, 2), Ahead.sampled

    def killed(at: Ahead, address: str) -> list[Table]:
        sampled(at, address)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ahead, "sampled", killed)
        with pytest.raises(KeyboardInterrupt):
            bench.play()
    assert len(bench.fleet.asked) == 26 and not bench.tables.keys() & {f"{bench.step.path}/rollouts.asker"}
    bench.play()
    assert len(bench.fleet.asked) == 26


def test_slices_of_an_interrupted_step_ask_for_nothing_more(store, monkeypatch):
    """They were waiting for their first replies when the interruption came."""
    replies, bench = threading.Event(), Bench(store, 1)
    bench.fleet.say = lambda *said: (replies.wait(30) and talk(*said)) or "?"

    def interrupted(futures: list[Future[None]]) -> Iterator[Future[None]]:
        left.extend(futures)
        while not bench.fleet.asked:
            time.sleep(0.01)
        raise KeyboardInterrupt

    left = list[Future[None]]()
    monkeypatch.setattr("flows.ahead.as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.play()
    replies.set()
    wait(left, timeout=30)
    assert {said[0] for said in bench.fleet.asked} == {"asker"}


def test_a_stage_that_is_rerun_asks_only_its_own(store):
    bench = Bench(store, 2)
    before = bench.play().rollouts
    shutil.rmtree(before.folder)
    bench.fleet.asked.clear()
    assert bench.play().rollouts.content_hash == before.content_hash
    assert Counter(said[0] for said in bench.fleet.asked) == {"answerer": 16}


def test_a_slice_that_fails_costs_nothing_but_its_time(store, caplog):
    """An engine that dies in a slice is asked again by the step; what fails there as well stops the step."""
    deaths = iter([EngineDied("it died twice")])

    def say(role: str, prompt: str, sample: int) -> str:
        for death in deaths if prompt == "answer 1a" else ():
            raise death
        return talk(role, prompt, sample)

    bench = Bench(store, 1, say)
    assert bench.play().rows.num_rows == 16
    assert Counter(bench.fleet.asked)["answerer", "answer 1a", 0] == 2 and len(bench.fleet.asked) == 27


@pytest.mark.parametrize("policy", [OTHER, Policy(id="api", weights="api:judge", content_hash="2")])
def test_slices_end_where_engines_would_have_to_change_models_or_calls_cost_money(store, policy):
    """From there on, the step asks stage by stage."""
    bench, threads = Bench(store, 1), set[str]()
    object.__setattr__(bench.run.machines, "api", SimpleNamespace(roll_out=bench.fleet.roll_out))
    bench.fleet.say = lambda role, *said: threads.add(f"{role} {named()}") or talk(role, *said)
    assert bench.play(policy).rows.num_rows == 16
    assert threads == {"asker ahead", "answerer MainThread"}


def named() -> str:
    return threading.current_thread().name.partition("_")[0]


def test_the_seconds_of_slices_count_for_what_they_sampled(store):
    """Eight seconds for 6 tokens of one table and 2 of another."""
    step = Step(lambda at: None, 1, store.root, store.find, num_prompts=2, seconds=8.0)
    for address, tokens in (("a", 2), ("a", 4), ("b", 2)):
        step.sampled.setdefault(address, []).append(Table(store.root, address, {"tokens": tokens}))
    assert [step.seconds_for(address) for address in ("a", "b", "c")] == [6.0, 2.0, 0.0]
