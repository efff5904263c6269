"""Absolute Zero's parts: what is read from replies, which programs may run, rewards, prompts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flows.azr.config import BANNED, Config
from flows.azr.programs import (
    FIRST_INPUTS,
    FIRST_MESSAGE,
    IDENTITY,
    TOO_LONG,
    check_program,
    first_task,
    is_same_output,
    measure_format,
    read_block,
    read_inputs_and_message,
    read_program_and_input,
    runs_of_answers,
    task_text,
)
from flows.azr.rewards import proposer_rewards, solver_rewards
from flows.azr.roles import Roles, show_programs, show_tasks, show_triplets
from flows.azr.steps import executed_tasks
from flows.settings import profile
from tasks.processes.sandbox import LOST
from tasks.prompt import Template
from tasks.readers.fences import blocks
from tasks.readers.malformed import Malformed
from tests.support.rows import publish, row
from warehouse.store import Place

F = "def f(a):\n    return a"
PENALTIES = {"malformed": -1.0}


TEMPLATE = "{{ program }} {% for r in references %}{{ r.program }} {% endfor %}"
MEASURED: dict[str, Any] = {
    "template": Template("propose", TEMPLATE),
    "values": {"program": "", "references": []},
    "model": "data/micro/azr",
}


def fence(name: str, text: str) -> str:
    return f"```{name}\n{text}\n```\n"


def test_the_last_blocks_of_the_answer_count_and_those_of_the_thoughts_do_not() -> None:
    reply = (
        f"<think>{fence('python', 'def f(b): return b')}</think><answer>First"
        f" {fence('output', '0')} no:\n{fence('python', F)}{fence('input', ' 1,2 ')}"
        f"{fence('output', '3')}</answer>{fence('output', '4')}"
    )
    assert read_block(reply, name="output") == "3"
    assert (
        read_program_and_input(reply, banned=()) == "```python\n" + F + "\n```\n```input\n1, 2\n```"
    )


def test_without_answer_tags_what_is_said_after_the_thoughts_counts() -> None:
    reply = f"<think>{fence('input', '0')}</think>So:\n{fence('input', '7')}"
    assert read_block(reply, name="input") == "7"


def test_inputs_with_fences_inside_their_lines_stay_whole() -> None:
    assert blocks(fence("input", "'a ``` b'") + fence("INPUT", "2"), "input") == ["'a ``` b'", "2"]


@pytest.mark.parametrize(
    ("reply", "total"),
    [
        ("<think>a</think>\n<answer>b</answer>", 1.0),
        ("the prompt opened it </think> <answer>b</answer>\n", 1.0),
        ("<answer>b</answer>", 0.0),
        ("<think>a</think> b", 0.0),
        ("<think>a</think><answer>b</answer> and more", 0.0),
        ("", 0.0),
    ],
)
def test_the_format_is_thoughts_then_an_answer(reply: str, total: float) -> None:
    assert measure_format(row("rollouts", reply=reply), row("prompts"))["format"] == {
        "total": total
    }


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (F, None),
        ("import math\nfrom collections import deque\n" + F, None),
        ("class Node:\n    pass\ndef g(x):\n    return x\n" + F, None),
        ("def f(a):\n    time = a\n    return time", None),  # a variable is no module
        ("def f(*a):\n    return a", None),
        ("def f(a:", "the program is no Python"),
        ("(" * 1000, "the program is no Python"),
        ("def g(a):\n    return a", "the program does not define one function f"),
        (F + "\n" + F, "the program does not define one function f"),
        ("def f():\n    return 1", "f takes no argument"),
        ("def f(a):\n    print(a)\n    return", "f returns nothing"),
        ("import random\n" + F, "the program uses random"),
        ("import os.path as p\n" + F, "the program uses os"),
        ("from time import time\n" + F, "the program uses time"),
        ("def f(a):\n    import sys\n    return a", "the program uses sys"),
        ("def f(a):\n    return eval(a)", "the program uses eval"),
        ("def f(a):\n    return __import__('os')", "the program uses __import__"),
    ],
)  # fmt: skip
def test_programs_that_no_task_can_be_made_of_are_malformed(program: str, why: str | None) -> None:
    if why is None:
        check_program(program, BANNED)
        return
    with pytest.raises(Malformed, match=why):
        check_program(program, BANNED)


def test_a_dotted_name_is_banned_as_it_is_written() -> None:
    for program in (
        "import os.path\n" + F,
        "import os\ndef f(a):\n    return os.path",
        "from os import path\n" + F,
    ):
        with pytest.raises(Malformed, match=r"the program uses os\.path"):
            check_program(program, ["os.path"])


def test_an_induction_needs_all_its_inputs_and_a_message() -> None:
    inputs = [fence("input", str(i)) for i in range(3)]
    hint = fence("message", "It stays.")
    text = read_inputs_and_message("".join([*inputs, hint]), num_inputs=2)
    assert (blocks(text, "input"), blocks(text, "message")) == (["1", "2"], ["It stays."])
    for parts, why in (
        ([inputs[0], hint], "too few inputs"),
        (inputs, "no message block"),
        ([*inputs[:1], fence("input", "x"), hint], "the input is no literal"),
    ):
        with pytest.raises(Malformed, match=why):
            read_inputs_and_message("".join(parts), num_inputs=2)


def task(task_id: str, text: str | None = "t", total: float = 1.0) -> Any:
    return row("tasks", task_id=task_id, rollout_id=task_id, prompt_id="p", text=text,
               format={"total": total}, malformed=None if text else "no python block")  # fmt: skip


def answer(rollout_id: str, task_id: str, text: str | None = "a", total: float = 1.0) -> Any:
    return row("answers", rollout_id=rollout_id, task_id=task_id, prompt_id="q", answer=text,
               format={"total": total}, malformed=None if text else "no input block")  # fmt: skip


def matched(rollout_id: str, verdict: bool | None) -> Any:
    return row(
        "matches",
        rollout_id=rollout_id,
        matched=verdict,
        reason="lost" if verdict is None else None,
    )


def test_a_proposal_earns_what_the_attempts_fail_and_nothing_if_all_agree() -> None:
    """b: one of three is right, 1 - 1/3. c: all are. d: none is. e: without tags. f: no program.
    g: its attempts were lost. h: one attempt was lost, the other is right, as in c."""
    tasks = [task(name, None if name == "f" else "t", float(name != "e")) for name in "bcdefgh"]
    verdicts = {"b": [True, False, None], "c": [True] * 3, "d": [False] * 3, "e": [True, False],
                "g": ["lost"] * 2, "h": [True, "lost"]}  # fmt: skip
    answers = []
    matches = []
    for name, some in verdicts.items():
        for i, verdict in enumerate(some):
            answers.append(answer(f"{name}{i}", name, None if verdict is None else "a"))
            if verdict is not None:
                matches.append(matched(f"{name}{i}", None if verdict == "lost" else verdict))
    rows = list(proposer_rewards(tasks, answers, matches, unlearnable=-0.5, **PENALTIES))
    rewards = {r["task_id"]: r["reward"] for r in rows}
    assert rewards == {
        "b": pytest.approx(2 / 3),
        "c": -0.5,
        "d": -0.5,
        "e": -1.0,
        "f": -1.0,
        "g": None,
        "h": -0.5,
    }
    assert {r["task_id"]: r["score"] for r in rows}["b"] == pytest.approx(1 / 3)


def test_a_task_that_is_too_long_to_be_asked_counts_as_never_solved() -> None:
    formed: Any = {**task("b", None), "malformed": TOO_LONG}
    without_tags: Any = {**task("c", None, 0.0), "malformed": TOO_LONG}
    rows = proposer_rewards([formed, without_tags], [], [], unlearnable=-0.5, **PENALTIES)
    assert [paid["reward"] for paid in rows] == [-0.5, -1.0]


def test_a_proposal_whose_process_was_lost_is_unscorable() -> None:
    lost: Any = {**task("b", None), "malformed": LOST}
    (paid,) = proposer_rewards([lost], [], [], unlearnable=-0.5, **PENALTIES)
    assert (paid["reward"], paid["unscorable"]) == (None, LOST)


def test_a_task_whose_process_was_lost_says_so_and_one_that_failed_has_its_reason(
    place: Place,
) -> None:
    text = task_text(F, ["1"])
    proposed = [
        {**task(name, text), "task_type": "deduction", "malformed": None} for name in ("a", "b")
    ]
    executions = [
        row("executions", subject_id="a", program=F, input="1", reason=LOST),
        row("executions", subject_id="b", program=F, input="1", reason="time limit"),
    ]
    done = executed_tasks(
        place,
        publish(place, "tasks", *proposed, label="proposed"),
        publish(place, "prompts", row("prompts", prompt_id="p")),
        publish(place, "draws"),
        publish(place, "executions", *executions),
        template=MEASURED["template"],
        model=MEASURED["model"],
        limit=5600,
    )
    reasons = {executed["task_id"]: executed["malformed"] for executed in done.rows()}
    assert reasons == {"a": LOST, "b": "the program: time limit"}


def test_eq_4_alone_pays_nothing_for_what_teaches_nothing() -> None:
    answers = [answer("c0", "c")]
    (paid,) = proposer_rewards(
        [task("c")], answers, [matched("c0", True)], unlearnable=0.0, **PENALTIES
    )
    assert paid["reward"] == 0.0


def test_an_answer_earns_one_or_a_penalty() -> None:
    answers = [
        answer("a", "t"),
        answer("b", "t"),
        answer("c", "t", None),
        answer("d", "t", total=0.0),
        answer("e", "t"),
    ]
    matches = [matched("a", True), matched("b", False), matched("d", True), matched("e", None)]
    paid = {
        r["rollout_id"]: r["reward"]
        for r in solver_rewards(answers, matches, wrong=-0.5, **PENALTIES)
    }
    assert paid == {"a": 1.0, "b": -0.5, "c": -1.0, "d": -1.0, "e": None}


def test_outputs_are_compared_by_value_and_no_literal_is_wrong() -> None:
    expected = row("tasks", reference="{'a': [1, 2.0]}")
    answers = ["{ 'a' :[1,2] }", "{'a': [1, 3]}", "dict(a=[1, 2])", "(" * 9000, ""]
    assert [is_same_output(expected, text) for text in answers] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_solver_never_sees_what_it_has_to_find() -> None:
    text = fence("python", "def f(a):\n    return a + 'SECRET'") + fence("input", "'HIDDEN'")
    deduction = row("tasks", task_type="deduction", text=text, reference="'OUTPUT'")
    abduction = {**deduction, "task_type": "abduction"}
    inputs, outputs = first_task("induction", 4, IDENTITY, FIRST_INPUTS, FIRST_MESSAGE)
    induction = row("tasks", task_type="induction", text=inputs, reference=outputs)
    tasks = [deduction, abduction, induction]
    shown = [
        str(values)
        for task_type in ("deduction", "abduction", "induction")
        for values in show_tasks(tasks, task_type=task_type)
    ]
    assert "HIDDEN" in shown[0] and "OUTPUT" not in shown[0]
    assert "HIDDEN" not in shown[1] and "OUTPUT" in shown[1]
    assert "def f" not in shown[2] and "Hello World" in shown[2] and "'a': 1" not in shown[2]


def test_an_induction_is_judged_by_the_inputs_that_were_hidden() -> None:
    inputs, outputs = first_task("induction", 4, IDENTITY, FIRST_INPUTS, FIRST_MESSAGE)
    induction = row("tasks", task_id="t", task_type="induction", text=inputs, reference=outputs)
    runs = list(runs_of_answers([answer("r", "t", F)], [induction]))
    assert [(run["program"], run["input"]) for run in runs] == [(F, "[1, 2, 3]"), (F, "{'a': 1}")]


def test_references_are_dealt_and_equal_ones_shown_once() -> None:
    text, reference = first_task("deduction", 2, IDENTITY, FIRST_INPUTS, FIRST_MESSAGE)
    draws = [row("draws", text=text, reference=reference, task_type="deduction")] * 4
    show = partial(show_triplets, task_type="deduction", num_prompts=2, limit=5600, **MEASURED)
    prompts = list(show(draws))
    assert [len(prompt["references"]) for prompt in prompts] == [1, 1]
    assert list(show([])) == [{"task_type": "deduction", "references": []}] * 2


def test_references_that_do_not_fit_are_left_out_of_the_prompt() -> None:
    """Of five words, forty and five only the short ones fit in 20 tokens."""
    draws = [
        row("draws", text=task_text("f " * length, [str(length)]), reference="1")
        for length in (4, 40, 5)
    ]
    show = partial(show_triplets, task_type="deduction", num_prompts=1, **MEASURED)
    (prompt,) = show(draws, limit=20)
    assert [reference["input"] for reference in prompt["references"]] == ["4", "5"]
    (prompt,) = show(draws, limit=60)
    assert len(prompt["references"]) == 3


def test_a_program_whose_prompt_is_too_long_gets_no_inputs() -> None:
    draws: list[Any] = [
        row("draws", task_id=str(length), text=task_text("f " * length, ["1"]))
        for length in (4, 40)
    ]
    prompts = list(show_programs(draws, limit=20, **MEASURED))
    assert [prompt["task_id"] for prompt in prompts] == ["4"]


@pytest.mark.parametrize("references", [0, 2])
def test_every_template_renders_and_asks_for_the_blocks_that_are_read(references: int) -> None:
    cfg = profile.load(Config, "smollm2", {})
    roles = Roles(cfg)
    triplet = {"program": "PROGRAM", "input": "INPUT", "output": "OUTPUT"}
    values = {
        "references": [triplet] * references,
        "program": "PROGRAM",
        "input": "INPUT",
        "output": "OUTPUT",
        "pairs": [triplet],
        "message": "MESSAGE",
    }
    asks_for = {
        "propose_deduction": ["python", "input"],
        "propose_abduction": ["python", "input"],
        "propose_induction": ["input", "message"],
        "solve_deduction": ["output"],
        "solve_abduction": ["input"],
        "solve_induction": ["python"],
    }
    for role in (*roles.proposer.values(), *roles.solver.values()):
        text = role.templates[0].render(dict(role.values), **values)
        form = text.rpartition("<answer>")[2]
        assert all(f"```{name}\n" in form for name in asks_for[role.name]), role.name
        assert "<think>" in text and "</answer>" in form


def test_induction_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="induction takes its programs from the other types"):
        profile.load(Config, "smollm2", {"task_types": ["induction"]})


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen2.5-coder-3b-2gpu", 2),
        ("qwen2.5-coder-7b-4gpu", 4),
        ("qwen2.5-7b-4gpu", 4),
        ("qwen2.5-coder-14b-8gpu", 8),
    ],
)
def test_the_paper_s_profiles_have_the_paper_s_numbers(name: str, gpus: int) -> None:
    cfg = profile.load(Config, name, {})
    assert (cfg.num_engines, cfg.trainer_processes) == (gpus, gpus)
    assert (cfg.batch_size, cfg.mini_batch, cfg.update.learning_rate) == (64, 128, 1e-6)
    assert (cfg.proposer.attempts, cfg.proposer.references, cfg.proposer.num_inputs) == (8, 6, 10)
    assert (cfg.iterations * cfg.steps, cfg.dialogues.response_tokens) == (500, 8096)
    assert cfg.dialogues.content_tokens == 5600
    (step,) = cfg.workload().steps
    assert sum(part.number for part in step.conversations) == 3 * 64 * (1 + 8 + 1)
    assert step.update is not None and step.update.settings.optimizer_steps == 3  # 384 / 128
    in_one = profile.load(Config, name, {"mini_batch": None})
    (step,) = in_one.workload().steps
    assert step.update is not None and step.update.settings.optimizer_steps == 1


def test_no_profile_is_without_a_test(tmp_path: Path) -> None:
    for name in profile.names(profile.home(Config) / "profiles"):
        assert profile.load(Config, name, {}).update.beta == 0.0
