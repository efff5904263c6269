"""Engines take prompts as they have room: another does what one has not begun, and every row
comes once."""

from __future__ import annotations

import threading
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tasks.engines import pool
from tasks.engines.fleet import Fleet
from tasks.engines.fleet_child import serve_calls
from tasks.engines.prompt_queues import LOT_SIZE, PromptQueues
from tasks.models.engine import EngineConfig, Policy, Sampling
from tasks.rollouts.dialogue import Dialogue
from tests.support.scripted import POLICY, ScriptedEngine, model_folder


def rows(*names: int) -> list[dict]:
    return [{"prompt_id": f"{name}", "messages": []} for name in names]


def ids(lot: list[dict]) -> list[int]:
    return [int(row["prompt_id"]) for row in lot]


def test_an_engine_without_prompts_helps_the_one_with_the_most():
    queues = PromptQueues(
        [
            rows(*range(LOT_SIZE)),
            rows(*range(100, 100 + 2 * LOT_SIZE)),
            rows(*range(200, 200 + 3 * LOT_SIZE)),
        ],
        first=0,
    )
    for number in range(3):
        assert len(queues.next(number)) == LOT_SIZE
    assert ids(queues.next(0)) == list(range(200 + 2 * LOT_SIZE, 200 + 3 * LOT_SIZE)), (
        "its last, in their order"
    )
    assert ids(queues.next(2)) == list(range(200 + LOT_SIZE, 200 + 2 * LOT_SIZE))
    assert ids(queues.next(2)) == list(range(100 + LOT_SIZE, 100 + 2 * LOT_SIZE))
    assert queues.next(0) == queues.next(1) == queues.next(2) == []


def test_an_engine_that_is_still_loading_keeps_its_share():
    queues = PromptQueues([rows(1), rows(2)], first=4)
    assert ids(queues.next(4)) == [1] and queues.next(4) == []
    assert ids(queues.next(5)) == [2]


def test_an_engine_that_died_gets_what_it_had_and_what_it_took_from_others():
    queues = PromptQueues([rows(1), rows(*range(10, 12 + LOT_SIZE))], first=0)
    queues.next(0), queues.next(1)
    assert ids(queues.next(0)) == [10 + LOT_SIZE, 11 + LOT_SIZE]
    queues.take_back(0)
    assert ids(queues.next(0)) == [1, 10 + LOT_SIZE, 11 + LOT_SIZE]


class Child:
    """An engine in a thread. The second one dies once, at the given prompt, or is lost with its
    node after every third reply, `losses` times."""

    fatal: str | None = None
    losses = 0
    is_lost = False
    found_no_node = False
    served: dict[int, int]

    def __init__(self, config: EngineConfig, number: int, log_dir: Path) -> None:
        self.pipe, theirs = Pipe()
        self.number, self.log_file, self.process = number, log_dir / "log", None
        self.engine = ScriptedEngine(self.reply)
        self.engine.use = lambda policy: None  # type: ignore[method-assign]
        threading.Thread(target=self.serve, args=(theirs,), daemon=True).start()

    def reply(self, _: Any, prompt: str) -> str | None:
        served = Child.served[self.number] = Child.served.get(self.number, 0) + 1
        if self.number == 1 and Child.losses and served % 3 == 0:
            Child.losses -= 1
            self.is_lost = True
            return None
        if self.number == 1 and Child.fatal and Child.fatal in prompt:
            Child.fatal = None
            return None
        return "red"

    def serve(self, pipe: Any) -> None:
        serve_calls(pipe, self.engine)

    def close(self) -> None:
        self.pipe.close()


@pytest.mark.parametrize(("fatal", "losses"), [(None, 0), ("blue", 0), (None, 5)])
def test_every_conversation_is_held_once_by_whichever_engine(tmp_path, monkeypatch, fatal, losses):
    monkeypatch.setattr(pool, "Child", Child)
    Child.fatal, Child.losses, Child.served = fatal, losses, {}
    folder = model_folder(tmp_path)
    fleet = Fleet(EngineConfig(model=str(folder), max_model_len=64), 2, tmp_path)
    said = [{"role": "user", "content": "red blue green"}]
    prompts: list[Any] = [
        {"prompt_id": str(i), "role": "r", "messages": said, "search_turns": 0} for i in range(40)
    ]
    policy = Policy(id=POLICY.id, weights=str(folder), content_hash="1")
    unwanted = frozenset({("3", 0), ("7", 1)})
    rows = fleet.roll_out(
        prompts,
        policy,
        Sampling(max_tokens=4),
        Dialogue(max_turns=1),
        group_size=2,
        seed=1,
        skip=unwanted,
        progress=lambda *_: None,
    )
    found = [(row["prompt_id"], row["sample"]) for row in rows]
    assert sorted(found) == sorted({(str(i), s) for i in range(40) for s in (0, 1)} - unwanted)
    assert sum(Child.served.values()) >= 78 and len(Child.served) == 2
    assert Child.losses < losses or not losses


def test_others_take_the_prompts_of_an_engine_that_was_lost_but_not_of_one_that_loads_again():
    for is_free, taken in ((True, [0, 1]), (False, [])):
        queues = PromptQueues([[{"prompt_id": 0}, {"prompt_id": 1}], []], 0)
        assert ids(queues.next(0)) == [0, 1]
        queues.take_back(0, is_free=is_free)
        assert ids(queues.next(1)) == taken
