"""The micro-world of ledgers: questions are true, readable and different in every world."""

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from data.micro.training import ledger_transcripts as transcripts
from data.micro.training.ledger_bars import options
from data.micro.training.ledger_transcripts import (
    DEEP_LEDGER_WORDS,
    LEDGER_WORDS,
    LONG_LEDGER_WORDS,
)
from data.micro.training.tokenizer import WORDS
from flows.spice import readers
from flows.spice.readers import MULTIPLE_CHOICE, read_choice, read_question
from flows.worlds.encyclopaedia import NAMES, VALUES, World
from flows.worlds.ledgers import (
    KINDS,
    LETTERS,
    NUM_ITEMS,
    NUM_ITEMS_DEEP,
    NUM_ITEMS_LONG,
    Ledger,
    corpus,
    draw_ledger,
    held_out_tasks,
    parse_question,
    true_answer,
)
from tasks.prompt import Malformed, Template
from tasks.readers.boxed import last_box

PROMPTS = Path(readers.__file__).parent / "prompts"

ROLES = (transcripts.chooser, transcripts.challenger, transcripts.reasoner)
E = NAMES[0]
CR = VALUES["craft"][0]
FO = VALUES["food"][0]
ME = VALUES["metal"][0]


@pytest.mark.parametrize(
    ("kind", "quantities", "answers"),
    [
        ("total", ("7", "5", "9"), ("7", "12", "21")),
        ("unknown", ("x", "5", "9"), ("x", "x + 5", "x + 14")),
        ("most", ("7", "5", "9"), (CR, CR, ME)),
    ],
)
def test_what_the_first_items_come_to(kind, quantities, answers):
    ledger = Ledger(E, kind, (CR, FO, ME), quantities)
    assert tuple(ledger.comes_to(n) for n in (1, 2, 3)) == answers
    for n in (2, 3):
        assert true_answer(ledger.question(n)) == answers[n - 1]


def test_a_ledger_states_every_item_and_what_it_comes_to():
    assert (
        Ledger(E, "unknown", (CR, FO), ("x", "5")).text
        == f"{E} has first x {CR} makes x . second 5 {FO} makes x + 5 ."
    )
    assert (
        Ledger(E, "most", (CR, FO), ("5", "7")).text
        == f"{E} has first 5 {CR} most {CR} . second 7 {FO} most {FO} ."
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{E} has 7 {CR} . how many in all ?",  # one item
        f"{E} has 7 {CR} and 5 {FO} . how many in all in the document ?",
        f"{E} has 7 {CR} and five {FO} . how many in all ?",
        f"{E} has 7 {CR} and x {FO} . how many in all ?",
        f"{E} has x {CR} and 5 {FO} . which is most ?",
        f"{E} has 5 {CR} and 5 {FO} . which is most ?",
        f"{E} has 7 {E} and 5 {FO} . how many in all ?",
        f"Nobody has 7 {CR} and 5 {FO} . how many in all ?",
        f"{E} has 7 and and 5 {FO} . how many in all ?",
        f"{E} has 7 {CR} and 5 and . how many in all ?",
    ],
)
def test_what_is_not_of_the_grammar_has_no_answer(text):
    assert parse_question(text) is None
    assert true_answer(text) is None


def test_the_true_letter_is_that_of_the_one_right_option():
    question = f"{E} has 7 {CR} and 5 {FO} . how many in all ?"
    assert true_answer(question, ["7", "12", "13", "11"]) == "B"
    assert true_answer(question, ["7", "13", "14", "11"]) is None
    assert true_answer(question, ["12", "12", "13", "11"]) is None


def test_four_different_options_hold_the_answer_anywhere():
    rng = random.Random(0)
    places = Counter()
    for i in range(800):
        ledger = draw_ledger(rng, NAMES, ("total", "most")[i % 2])
        count = rng.randint(2, NUM_ITEMS)
        found = ledger.choices(rng, count)
        assert len(set(found)) == len(LETTERS)
        places[true_answer(ledger.question(count), found)] += 1
    assert set(places) == set(LETTERS) and min(places.values()) > 150


def test_a_corpus_is_its_seeds_and_its_kinds():
    assert corpus(1, 20) == corpus(1, 20) != corpus(2, 20)
    texts = [row["text"] for row in corpus(1, 50, ("total", "unknown"))]
    assert not any(" most " in text for text in texts) and any(" x " in text for text in texts)
    assert all(" most " in row["text"] for row in corpus(1, 50, ("most",)))
    assert len({row["document_id"] for row in corpus(1, 500)}) == 500


def test_held_out_questions_have_every_form_and_length_equally_often():
    tasks = held_out_tasks(7, 100)
    assert Counter(t.count for t in tasks) == dict.fromkeys(range(2, 7), 20)
    assert Counter(t.answer_type for t in tasks) == {
        "Integer": 20, "Expression": 20, "String": 20, "multiple_choice": 40
    }  # fmt: skip
    assert all(true_answer(t.question, t.options) == t.answer for t in tasks)
    assert {t.question for t in held_out_tasks(8, 100)}.isdisjoint(t.question for t in tasks)


@pytest.mark.parametrize(
    ("num_items", "last"), [(NUM_ITEMS_LONG, "sixteenth"), (NUM_ITEMS_DEEP, "thirty-second")]
)
def test_longer_ledgers_go_on_where_the_others_end(num_items, last):
    num_counts = num_items - 1
    tasks = held_out_tasks(7, 10 * num_counts, num_items)
    assert Counter(t.count for t in tasks) == dict.fromkeys(range(2, num_items + 1), 10)
    assert all(true_answer(t.question, t.options) == t.answer for t in tasks)
    assert {t.task_id for t in tasks}.isdisjoint(t.task_id for t in held_out_tasks(7, 150))
    for document in corpus(1, 20, num_items=num_items):
        assert f" {last} " in document["text"]


def replies(draw, num=200):
    world = World(3, 40)
    rng = random.Random(3)
    for _ in range(num):
        transcript = draw(world, rng)
        opening = transcript.trunk[0][0]
        for branch in transcript.branches:
            yield opening, branch[1][0].removesuffix(" <|im_end|>")


def test_the_words_of_the_base_model_keep_their_ids_and_all_that_is_said_is_known():
    assert LEDGER_WORDS[: len(WORDS)] == WORDS
    known = set(LEDGER_WORDS)
    for draw in ROLES:
        for opening, reply in replies(draw):
            assert not set(f"{opening} {reply}".split()) - known


@pytest.mark.parametrize(
    ("depth", "words", "fewer"),
    [
        (transcripts.LONG, LONG_LEDGER_WORDS, LEDGER_WORDS),
        (transcripts.DEEP, DEEP_LEDGER_WORDS, LONG_LEDGER_WORDS),
    ],
)
def test_a_model_of_longer_ledgers_adds_words_to_those_of_the_other(depth, words, fewer):
    assert words[: len(fewer)] == fewer
    known = set(words)
    assert len(known) == len(words)
    for draw in ROLES:
        for opening, reply in replies(partial(draw, depth=depth)):
            assert not set(f"{opening} {reply}".split()) - known


@pytest.mark.parametrize("depth", [transcripts.SHORT, transcripts.LONG, transcripts.DEEP])
def test_transcripts_ask_true_questions_but_for_the_share_that_is_meant_to_be_invalid(depth):
    outcomes = Counter()
    for opening, reply in replies(partial(transcripts.challenger, depth=depth), 500):
        asked = opening.split()
        kind = MULTIPLE_CHOICE if asked[2] == MULTIPLE_CHOICE else asked[3]
        try:
            found = read_question(reply, kind)
            outcomes[
                (
                    "true"
                    if true_answer(found["text"], found["options"]) == found["reference"]
                    else "false"
                )
            ] += 1
        except Malformed:
            outcomes["invalid"] += 1
    assert outcomes["false"] == 0
    assert outcomes["invalid"] / outcomes.total() == pytest.approx(0.09, abs=0.03)


def test_transcripts_choose_what_suits_the_ledger():
    for opening, reply in replies(transcripts.chooser):
        formats = [name for name in ("multiple_choice", "free_form") if f" {name} " in opening]
        chosen = read_choice(reply, formats, ["Integer", "Expression", "String"])
        if " none " not in opening:
            wanted = (
                "String" if " most " in opening else "Expression" if " x " in opening else "Integer"
            )
            assert chosen in (wanted, MULTIPLE_CHOICE)


@pytest.mark.parametrize(
    ("depth", "fewest", "most"),
    [(transcripts.SHORT, 0.3, 0.6), (transcripts.LONG, 0.1, 0.3), (transcripts.LONG_SOUND, 1, 1)],
)
def test_the_base_reasoner_answers_with_what_it_has_when_it_stops_early(depth, fewest, most):
    lengths = Counter()
    for opening, reply in replies(partial(transcripts.reasoner, depth=depth)):
        ledger = parse_question(
            opening.split("reason : ")[1].split(" <|im_end|>")[0].split(" options ")[0]
        )
        steps = sum(not said.startswith("so ") for said in reply.split(" . ")[:-1])
        assert ledger is not None and 1 <= steps <= len(ledger.items)
        if " options " not in opening:
            assert last_box(reply) == ledger.comes_to(steps)
        lengths[steps == len(ledger.items)] += 1
    assert fewest <= lengths[True] / lengths.total() <= most


def test_a_prompt_of_the_pipeline_is_the_one_that_was_learnt():
    shown = Template.load(PROMPTS / "micro", "reasoner").render(
        task="q ?", options=options(["1", "2", "3", "4"])
    )
    assert shown == "reason : q ? options 1 A 2 B 3 C 4 D"
    assert (
        transcripts.user("reasoner", task="q ?", options=[])[0]
        == "<|im_start|> user reason : q ? <|im_end|> <|im_start|> assistant"
    )
    assert (
        Template.load(PROMPTS / "micro", "choose").render(formats=["free_form"], document="")
        == "choose free_form : document : none"
    )
    assert set(KINDS) == {"total", "unknown", "most"}
