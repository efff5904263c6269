"""The micro-world of masked ledgers: exactly one option is right, and masks of every length."""

import random
import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from data.micro.training import masking
from data.micro.training.masking import HASTY, MASKING_WORDS, SOUND, fitting
from data.micro.training.masking_bars import read_task
from flows.worlds.built_in import MASKED_LEDGERS
from flows.worlds.encyclopaedia import NAMES, VALUES, World
from flows.worlds.ledgers import KINDS, Ledger
from flows.worlds.masked_ledgers import (
    LONGEST_MASK,
    Masked,
    draw_masked,
    entries_of,
    held_out_tasks,
    parse_entries,
    true_letter,
)
from tasks.readers.boxed import last_box
from tests.support.rows import row
from warehouse.schemas import Task

E = NAMES[0]
CR = VALUES["craft"][0]
FO = VALUES["food"][0]
ME = VALUES["metal"][0]
TOTAL = Ledger(E, "total", (CR, FO, ME), ("7", "5", "9"))


def test_a_mask_takes_the_place_of_its_entries():
    masked = Masked(TOTAL, 1, 2)
    assert masked.text == f"{E} has first 7 {CR} makes 7 . [MASK] third 9 {ME} makes 21 ."
    assert masked.step == f"second 5 {FO} makes 12 ."


@pytest.mark.parametrize(
    ("kind", "quantities", "right", "wrong"),
    [
        ("total", ("7", "5", "9"), "makes 12", "makes 13"),
        ("unknown", ("x", "5", "9"), "makes x + 5", "makes x + 6"),
        ("most", ("7", "5", "9"), f"most {CR}", f"most {FO}"),
    ],
)
def test_the_right_option_continues_the_entries_before_the_mask(kind, quantities, right, wrong):
    masked = Masked(Ledger(E, kind, (CR, FO, ME), quantities), 1, 2)
    step = f"second 5 {FO} {right} ."
    assert masked.step == step
    assert true_letter(masked.text, [step.replace(right, wrong), step]) == "B"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("how many in all ?", [f"second 5 {FO} makes 12 ."]),
        (Masked(TOTAL, 1, 2).text, []),
        (Masked(TOTAL, 1, 2).text, [f"second 5 {FO} makes 12 ."] * 2),
        (Masked(TOTAL, 1, 2).text, [f"third 5 {FO} makes 12 ."]),
        (Masked(TOTAL, 1, 2).text, [f"second 5 {FO} makes 12"]),
        (Masked(TOTAL, 1, 2).text.replace("makes 7", "makes 8"), [f"second 5 {FO} makes 12 ."]),
        (Masked(TOTAL, 1, 2).text.replace(E, "Nobody"), [f"second 5 {FO} makes 12 ."]),
    ],
)
def test_a_task_without_exactly_one_right_option_has_no_true_letter(text, options):
    assert true_letter(text, options) is None


def test_distractors_all_differ_and_are_wrong_to_the_last_entry():
    rng = random.Random(0)
    for _ in range(200):
        masked = draw_masked(rng, NAMES, rng.randint(1, LONGEST_MASK))
        wrong = masked.distractors(rng, 3)
        assert len({masked.step, *wrong}) == 4
        truth = entries_of(masked.ledger)[masked.end - 1]
        for text in wrong:
            entries = parse_entries(text)
            assert entries
            last = entries[-1]
            assert last.result != truth.result
            assert replace(last, result=truth.result) == truth


def test_held_out_masks_have_every_length_and_kind_and_their_answers_are_true(place):
    tasks = held_out_tasks(3, 160)
    assert set(Counter(task.length for task in tasks).values()) == {160 // LONGEST_MASK}
    assert set("ABCD") == {task.answer for task in tasks}
    assert [task.text for task in tasks] == [task.text for task in held_out_tasks(3, 160)]
    assert not {task.text for task in tasks} & {task.text for task in held_out_tasks(4, 160)}
    assert MASKED_LEDGERS.tasks and MASKED_LEDGERS.sound and MASKED_LEDGERS.oracle
    for task in MASKED_LEDGERS.tasks(place, seed=3, num_tasks=16).rows(Task):
        assert MASKED_LEDGERS.sound(task)
        right = [letter for letter in "ABCD" if MASKED_LEDGERS.oracle(task, letter)]
        assert right == [task["reference"]]


def test_a_task_is_described_by_its_truth_and_the_length_of_its_mask():
    assert MASKED_LEDGERS.describe and MASKED_LEDGERS.oracle
    masked = Masked(TOTAL, 1, 2)
    options = [f"second 5 {FO} makes 11 .", masked.step]
    task = row("tasks", text=masked.text, options=options, reference="A")
    assert dict(MASKED_LEDGERS.describe(task)) == {"true_reference": 0.0, "entries": 1.0}
    assert not list(MASKED_LEDGERS.describe(row("tasks", text="?", options=None, reference="A")))
    assert MASKED_LEDGERS.oracle(row("tasks", text="?", options=None), "A") is None


@pytest.mark.parametrize(
    "role",
    [
        partial(masking.author, habits=HASTY),
        partial(masking.solver, habits=HASTY),
        masking.letter_drill,
    ],
)
def test_the_model_knows_every_word_of_its_training_text(role):
    world = World(1, 40)
    known = set(MASKING_WORDS)
    for seed in range(20):
        transcript = role(world, random.Random(seed))
        segments = [*transcript.trunk, *(part for branch in transcript.branches for part in branch)]
        assert not {word for text, _ in segments for word in text.split()} - known


def test_an_author_writes_tasks_whose_references_are_true():
    world = World(1, 40)
    read = []
    for seed in range(100):
        transcript = masking.author(world, random.Random(seed), SOUND)
        prompt = transcript.trunk[0][0]
        text = prompt.partition("Text:\n")[2].partition("\nEnd")[0]
        read += [read_task(branch[-1][0], text) for branch in transcript.branches]
    tasks = [task for task in read if task]
    assert 0.85 < len(tasks) / len(read) < 1
    assert all(true_letter(task["text"], task["options"]) == task["reference"] for task in tasks)


def test_a_hasty_solver_chooses_among_the_options_that_fit_so_far():
    rng = random.Random(0)
    masked = draw_masked(rng, NAMES, LONGEST_MASK)
    options = [masked.step, *masked.distractors(rng, 3)]
    assert fitting(masked, options, LONGEST_MASK) == ["A"]
    for reached in range(1, LONGEST_MASK + 1):
        assert "A" in fitting(masked, options, reached)
    truth = []
    for habits in (SOUND, HASTY):
        replies = [masking.filled(rng, masked, options, habits) for _ in range(300)]
        boxed = [last_box(reply) for reply in replies if reply.endswith("}")]
        truth.append(boxed.count("A") / len(boxed))
    assert truth[0] == 1 and 0.25 < truth[1] < 0.75


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_first_entry_is_never_masked(kind):
    rng = random.Random(0)
    assert all(draw_masked(rng, NAMES, LONGEST_MASK, kind).start >= 1 for _ in range(50))


def test_each_letter_of_a_drill_is_that_of_the_only_option_with_this_result():
    world = World(1, 40)
    for seed in range(50):
        (prompt, _), *segments = masking.letter_drill(world, random.Random(seed)).trunk
        for (said, unlearned), (letter, learned) in zip(segments[::2], segments[1::2], strict=True):
            assert (unlearned, learned) == (0.0, 1.0)
            result = said.removeprefix("so ")
            options = prompt.partition(" options ")[2]
            texts = dict(zip("ABCD", re.split(r" [ABCD](?: |$)", options), strict=False))
            assert [name for name, text in texts.items() if f" {result}" in f" {text}"] == [
                letter.removesuffix(" .")
            ]
