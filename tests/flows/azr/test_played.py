"""Absolute Zero's Algorithm 1 once over a scripted engine, with programs that really run.

Every number is worked out by hand from the script: one round of seeding and one step, two proposals
and two answers of every type.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.azr.flow import azr_iteration
from tests.support.scripted_play import (
    Asked,
    Script,
    any_text_model,
    changed_if,
    first_stale_in_fork,
    perform,
)
from warehouse.query import query
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "iterations": 1,
    "steps": 1,
    "batch_size": 2,
    "mini_batch": 12,
    "engine.max_model_len": 4096,
    "dialogues.response_tokens": 512,
    "seeding.rounds": 1,
    "proposer.references": 2,
    "proposer.attempts": 4,
    "proposer.num_inputs": 4,
    "sandbox.cpu_s": 2,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "monitor.max_copy": None,
    "evaluation.benchmarks": [],
    "evaluation.benchmark": "none",
}
DOUBLE = "def f(a):\n    return a * 2"
LENGTHS = "def f(a, b):\n    return [len(a), len(b)]"
BROKEN = "def f(a):\n    return a / 0"
CHANCE = "def f(a):\n    return hash(a)"
SQUARE = "def f(a):\n    return a * a"


def fence(name: str, text: str) -> str:
    return f"```{name}\n{text}\n```\n"


def formed(*fences: str) -> str:
    return f"<think>Well.</think>\n<answer>\n{''.join(fences)}</answer>"


def program(source: str, text: str) -> str:
    return formed(fence("python", source), fence("input", text))


INPUTS = [fence("input", text) for text in ("1", "2", "3", "'x'")]
HINT = fence("message", "It grows.")
PROPOSALS = {  # of the seeding, then of the step
    "propose_deduction": [
        program(DOUBLE, "21"),
        program(BROKEN, "1"),
        program(LENGTHS, "'ab', []"),
        "no tags, no program",
    ],
    "propose_abduction": [
        program(CHANCE, "'text'"),
        program("import os\n" + DOUBLE, "1"),
        program(SQUARE, "3"),
        fence("python", DOUBLE) + fence("input", "(1, 2)"),  # valid, but without tags
    ],
    "propose_induction": [
        formed(*INPUTS, HINT),
        formed(*INPUTS[:3], HINT),
        formed(*INPUTS, HINT),
        formed(*INPUTS),
    ],
}


def say():
    left = {name: list(replies) for name, replies in PROPOSALS.items()}

    def reply(asked: Asked) -> str:
        if asked.template.startswith("propose"):
            return left[asked.template].pop(0)
        if asked.template == "solve_deduction":
            return deduce(asked)
        if asked.template == "solve_abduction":
            return abduce(asked)
        return induce(asked)

    return reply


def deduce(asked: Asked) -> str:
    if "len(b)" in asked.text:  # of four attempts one is right, one of them in another notation
        answers = ["[2,0]", "[2, 1]", "2, 0", "print('[2, 0]')"]
        return formed(fence("output", answers[asked.sample]))
    return formed(fence("output", "'Hello World'"))


def abduce(asked: Asked) -> str:
    if "a * a" in asked.text:  # -3 is another input for 9; 9 / 3 is an expression
        return formed(fence("input", ["-3", "3", "9 / 3", "2"][asked.sample]))
    if "a * 2" in asked.text:
        return "<answer>no fence</answer>"
    return formed(fence("input", "'Hello World'"))


def induce(asked: Asked) -> str:
    hostile = "import posix\ndef f(a):\n    posix.write(3, b'{\"output\": \"6\"}')\n    return a"
    sources = [DOUBLE, "def f(a):\n    return a + a", SQUARE, hostile]
    return formed(fence("python", sources[asked.sample]))


def play(folder: Path, **changed: object) -> tuple[Store, Script]:
    script = Script(say())
    store = Store(folder / "store")
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        azr_iteration("smollm2", "r", {**SETTINGS, "models.base": model, **changed})
    return store, script


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("azr"))


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_what_is(played) -> None:
    for sql in ["select label, step, task_type, text, reference, malformed from tasks order by all",
      "select label, step, program, input, output, reason from executions order by all",
      "select label, score, components, reward, advantage, unscorable from advantages order by all",
      "select label, matched, reason from matches order by all", "select label,kept,reason,text from pools where step=1 and iteration=1"]:
        print(sql)
        for r in rows(played, sql): print("  ", r)
