"""The quality bars of the micro model about programs, measured at temperature 1 on tasks of a seed
that training never draws from."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from data.micro.training.bars import Bar, share
from data.micro.training.ledger_bars import BENCH_WORLD, words
from data.micro.training.model import MicroModel
from data.micro.training.program_transcripts import user
from data.micro.training.sampler import sample
from flows.azr.programs import outputs, read_block, read_inputs_and_message, read_program_and_input
from flows.azr.roles import ANSWERED_IN, visible
from flows.worlds.programs import (
    MAX_STEPS,
    NUM_INPUTS,
    TASK_TYPES,
    ProgramTask,
    TaskType,
    draw_program,
    held_out_tasks,
    is_right,
    parse_task,
)
from tasks.readers.fences import unfolded
from tasks.readers.malformed import Malformed

NUM_TASKS = 480
MOST_TOKENS = 96


def program_bars(model: MicroModel) -> Iterator[Bar]:
    yield from solving_bars(model)
    for task_type in ("deduction", "abduction"):
        yield from proposing_bars(model, task_type)
    yield induction_bar(model)


def read_or_none(reply: str, read: Callable[[str], str]) -> str | None:
    """What a reader reads from a reply; None if the reply is malformed."""
    try:
        return read(unfolded(words(reply)))
    except Malformed:
        return None


def solving_bars(model: MicroModel, num: int = NUM_TASKS) -> Iterator[Bar]:
    """The shares of readable and of right answers to held-out tasks, overall, by type and by
    length, deliberately mediocre."""
    tasks = list(held_out_tasks(BENCH_WORLD, num))
    prompts = [user(f"solve_{task.task_type}", **shown(task))[0] for task in tasks]
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=MOST_TOKENS)
    readable = []
    right = []
    for task, reply in zip(tasks, replies, strict=True):
        answer = read_or_none(reply, partial(read_block, name=ANSWERED_IN[task.task_type]))
        readable.append(answer is not None)
        right.append(bool(answer and is_right(task.task_type, task.text, answer)))
    yield Bar("Solver: readable answers", share(readable), num, 0.85, 0.985)
    yield Bar("Solver: right answers", share(right), num, 0.30, 0.60)
    for task_type in TASK_TYPES:
        hits = [(t, hit) for t, hit in zip(tasks, right, strict=True) if t.task_type == task_type]
        yield Bar(f"Solver: {task_type}", share([hit for _, hit in hits]), len(hits), 0.25, 0.70)
        for count in range(1, MAX_STEPS + 1):
            some = [hit for task, hit in hits if task.num_steps == count]
            yield Bar(f"Solver: {task_type}, {count} steps", share(some), len(some), gates=False)


def shown(task: ProgramTask) -> dict[str, Any]:
    """What the Solver sees of a held-out task."""
    all_outputs = outputs(
        {
            "task_id": task.task_id,
            "task_type": task.task_type,
            "text": task.text,
            "reference": task.reference,
        }
    )
    return visible(task.task_type, task.text, all_outputs)


def proposing_bars(model: MicroModel, task_type: TaskType, num: int = 300) -> Iterator[Bar]:
    """The share of proposals whose program follows the grammar, and the lengths of programs
    proposed without an example."""
    prompt, _ = user(f"propose_{task_type}", references=[])
    read = partial(read_program_and_input, banned=())
    replies = sample(model, [prompt] * num, 1.0, BENCH_WORLD, max_tokens=MOST_TOKENS)
    texts = [read_or_none(reply, read) for reply in replies]
    valid = [task for text in texts if text and (task := parse_task(text))]
    yield Bar(f"Proposer: valid {task_type}", len(valid) / num, num, 0.80, 0.985)
    lengths = [len(task.program.steps) for task in valid]
    for count in range(MAX_STEPS + 1):
        of_length = lengths.count(count) / len(lengths)
        yield Bar(f"{task_type} of {count} steps", of_length, len(lengths), gates=False)


def induction_bar(model: MicroModel, num: int = 300) -> Bar:
    """The share of proposals that have all inputs and a message."""
    rng = random.Random(f"bars {BENCH_WORLD}")
    programs = [draw_program(rng, rng.randint(1, MAX_STEPS)) for _ in range(num)]
    prompts = [user("propose_induction", program=program.text)[0] for program in programs]
    read = partial(read_inputs_and_message, num_inputs=NUM_INPUTS)
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=MOST_TOKENS)
    valid = [read_or_none(reply, read) is not None for reply in replies]
    return Bar("Proposer: valid induction", share(valid), num, 0.80, 0.985)
