"""Absolute Zero in the built-in world of programs: what its model is taught is what is asked and
read."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from data.micro.training import program_transcripts as transcripts
from data.micro.training.ledger_transcripts import LEDGER_WORDS
from data.micro.training.packing import tokens_of
from data.micro.training.program_transcripts import PROGRAM_WORDS
from data.micro.training.tokenizer import EOS, UNKNOWN
from flows.azr.config import Config
from flows.azr.held_out import measure_proposals
from flows.azr.programs import (
    first_task,
    measure_format,
    read_block,
    read_inputs_and_message,
    read_program_and_input,
    read_words,
)
from flows.azr.roles import ANSWERED_IN, Roles
from flows.azr.steps import match_errors
from flows.settings import profile
from flows.worlds.built_in import PROGRAMS
from flows.worlds.encyclopaedia import World
from flows.worlds.programs import (
    BASE,
    MAX_STEPS,
    Program,
    Step,
    draw_program,
    is_right,
    parse_task,
    task_text,
)
from tasks.readers.malformed import Malformed
from tests.support.rows import row

WORLD = World(1_000_000, 4)
DRAWS = [
    transcripts.deducer,
    transcripts.abducer,
    transcripts.inducer,
    transcripts.proposer,
    partial(transcripts.proposer, task_type="abduction"),
    transcripts.induction_proposer,
    transcripts.digit_drill,
]


def replies_of(transcript: Any) -> list[str]:
    return [branch[-1][0].removesuffix(f" {EOS}") for branch in transcript.branches]


def malformed_share(replies: list[str], read: Any) -> float:
    missed = 0
    for reply in replies:
        try:
            read_words(reply, read=read)
        except Malformed:
            missed += 1
    return missed / len(replies)


def test_the_model_knows_every_word_that_it_is_taught() -> None:
    assert PROGRAM_WORDS[: len(LEDGER_WORDS)] == LEDGER_WORDS  # it starts from their model
    unknown = PROGRAM_WORDS.index(UNKNOWN)
    for draw in DRAWS:
        for seed in range(100):
            assert unknown not in tokens_of(draw(WORLD, random.Random(seed)), PROGRAM_WORDS).ids


@pytest.mark.parametrize("num_steps", range(MAX_STEPS + 1))
def test_going_backwards_through_a_program_leads_to_its_input(num_steps: int) -> None:
    program = draw_program(random.Random(num_steps), num_steps)
    for number in range(BASE):
        lines, found = transcripts.backwards(program, program.output(number), num_steps)
        assert found == number and len(lines) == num_steps + 1
        assert lines[-1].startswith("x ") and lines[-1].endswith(f"is {number} ;")


def test_a_careful_induction_is_always_right_with_and_without_a_hint() -> None:
    rng = random.Random(0)
    for n in range(200):
        program = draw_program(rng, n % (MAX_STEPS + 1))
        inputs = transcripts.draw_inputs(rng)
        for hint in ("none", program.hint):
            _, found = transcripts.induction(rng, program, inputs[:2], hint=hint, careful=True)
            assert is_right("induction", task_text(program, inputs), found.text)


def test_replies_of_the_solver_are_read_except_sloppy_ones() -> None:
    for draw, name in ((transcripts.deducer, "output"), (transcripts.abducer, "input")):
        replies = [
            reply for seed in range(300) for reply in replies_of(draw(WORLD, random.Random(seed)))
        ]
        share = malformed_share(replies, partial(read_block, name=name))
        # an answer without its end tag is read, too, but not well formed
        assert 0 < share < transcripts.SLOPPY
        formed = [
            measure_format(row("rollouts", reply=reply), row("prompts"))["format"]["total"]
            for reply in replies
        ]
        assert 1 - 1.5 * transcripts.SLOPPY < sum(formed) / len(formed) < 1


def test_proposals_are_read_and_mostly_follow_the_grammar() -> None:
    replies = [
        reply
        for seed in range(300)
        for reply in replies_of(transcripts.proposer(WORLD, random.Random(seed)))
    ]
    read = partial(read_program_and_input, banned=())
    assert 0 < malformed_share(replies, read) < transcripts.SLOPPY
    grammatical = [
        parse_task(read_words(reply, read=read)) is not None
        for reply in replies
        if "``` ```input" in reply
    ]
    # some return a variable that is not defined
    assert 1 - 1.5 * transcripts.UNDEFINED < sum(grammatical) / len(grammatical) < 1
    inductions = [
        reply
        for seed in range(300)
        for reply in replies_of(transcripts.induction_proposer(WORLD, random.Random(seed)))
    ]
    read = partial(read_inputs_and_message, num_inputs=4)
    assert 0 < malformed_share(inductions, read) < transcripts.SLOPPY


def test_the_profile_asks_in_the_words_that_the_model_was_taught() -> None:
    cfg = profile.load(Config, "micro", {})
    assert cfg.reads_words and not cfg.reads_lines
    roles = Roles(cfg)
    program = "def f ( x ) : a = x + 3 ; return a % 10"
    values = {
        "references": [{"program": program, "input": "4", "output": "7"}],
        "program": program,
        "input": "4",
        "output": "7",
        "pairs": [{"input": "4", "output": "7"}],
        "message": "times 1",
    }
    known = set(PROGRAM_WORDS)
    for role in (*roles.proposer.values(), *roles.solver.values()):
        text = role.templates[0].render(dict(role.values), **values)
        assert set(text.split()) <= known, role.name


def test_the_run_begins_with_a_program_of_the_model_s_own_language() -> None:
    seeding = profile.load(Config, "micro", {}).seeding
    for task_type in ANSWERED_IN:
        text, reference = first_task(
            task_type, 4, seeding.identity, seeding.inputs, seeding.message
        )
        assert PROGRAMS.sound
        assert PROGRAMS.sound(row("tasks", task_type=task_type, text=text, reference=reference))


def test_the_solver_answers_held_out_tasks_of_types_that_are_not_trained() -> None:
    roles = Roles(profile.load(Config, "micro", {"task_types": ["deduction"]}))
    assert list(roles.proposer) == ["deduction"]
    assert list(roles.solver) == ["deduction", "abduction", "induction"]


def test_a_verdict_that_is_not_the_truth_is_an_error_where_the_truth_is_known() -> None:
    """a: right and called so. b: wrong, and called right. c: no number. d: not compared."""
    text = task_text(Program((Step("+", 3), Step("*", 7))), [4])
    tasks = [row("draws", task_id="t", task_type="deduction", text=text, reference="9")]
    answers = [
        row("answers", rollout_id=rollout_id, task_id="t", answer=answer)
        for rollout_id, answer in (("a", "9"), ("b", "8"), ("c", "nine"), ("d", "9"))
    ]
    verdicts = {"a": True, "b": True, "c": False, "d": None}
    matches = [
        row("matches", rollout_id=name, matched=verdict) for name, verdict in verdicts.items()
    ]
    errors = list(match_errors(answers, matches, tasks, oracle=PROGRAMS.oracle))
    assert errors == [("reward_error", 0.0), ("reward_error", 1.0)]


def test_what_was_proposed_is_measured_by_type_and_length() -> None:
    text = task_text(Program((Step("+", 3), Step("*", 7))), [4])
    tasks = [
        row("tasks", task_id="a", task_type="deduction", text=text, reference="9"),
        row("tasks", task_id="b", task_type="deduction", text=None, malformed="no input block"),
        row("tasks", task_id="c", task_type="abduction", text=text, reference="8"),
    ]
    rewards = [row("rewards", task_id="a", score=0.25), row("rewards", task_id="c", score=None)]
    measured = sorted(measure_proposals(tasks, rewards, describe=PROGRAMS.describe))
    assert measured == sorted(
        [
            *[("valid", 1.0), ("valid", 0.0), ("valid", 1.0)],
            *[("valid_deduction", 1.0), ("valid_deduction", 0.0), ("valid_abduction", 1.0)],
            *[("true_reference", 1.0), ("true_reference", 0.0), ("steps", 2.0), ("steps", 2.0)],
            *[("steps_deduction", 2.0), ("steps_abduction", 2.0)],
            *[("pass_rate", 0.25), ("pass_rate_deduction", 0.25)],
        ]
    )
    assert ("valid", 0.0) in measure_proposals(tasks, rewards, describe=None)
