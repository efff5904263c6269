"""The world of trails: a grammar whose questions a rule can answer, and transcripts in a closed
vocabulary."""

import random
from functools import partial
from typing import Any

import pytest

from data.micro.training.bars import passed
from data.micro.training.model import load_checkpoint
from data.micro.training.trail_bars import SSP, trail_bars
from data.micro.training.trail_transcripts import (
    MEDIOCRE,
    SOUND,
    TRAIL_WORDS,
    Habits,
    checker,
    proposer,
    solver,
)
from data.micro.training.transcripts import Transcript
from flows.ssp.readers import rules
from flows.worlds import encyclopaedia
from flows.worlds.built_in import TRAILS
from flows.worlds.trails import (
    MAX_HOPS,
    NUM_TIES,
    TIES,
    Question,
    World,
    corpus,
    held_out_tasks,
    open_world,
    parse_question,
    world_of,
    write_question,
)
from tests.support.rows import row
from warehouse.schemas import Task

DRAWN = encyclopaedia.World(11, 40)
WORLD = open_world(11, 40)
DRAWS = [
    partial(draw, habits=habits)
    for habits in (SOUND, MEDIOCRE)
    for draw in (proposer, solver, checker)
]


def text_of(transcript: Transcript) -> str:
    assert not transcript.branches
    return " ".join(text for text, _ in transcript.trunk)


def spoken(transcript: Transcript) -> list[str]:
    """What the model learns to say, turn by turn."""
    return [text.removesuffix(" <|im_end|>") for text, weight in transcript.trunk if weight]


def element(turn: str, name: str) -> str:
    return turn.split(f"<{name}> ")[1].split(f" </{name}>")[0]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("who is Baba 's friend ?", Question("Baba", ("friend",))),
        (" who is  Baba 's friend 's ally ? ", Question("Baba", ("friend", "ally"))),
        ("who is Baba ?", None),
        ("who is Baba 's craft ?", None),
        ("who is Baba 's friend", None),
        ("who is Baba 's friend ? yes", None),
        ("what is Baba 's friend ?", None),
        ("", None),
    ],
)
def test_a_question_is_read_by_its_grammar_or_not_at_all(text, question):
    assert parse_question(text) == question
    if question is not None:
        assert write_question(question) == " ".join(text.split())


def test_ties_hold_in_both_directions():
    for person, ties in WORLD.ties.items():
        assert len(ties) == len(set(ties.values())) == NUM_TIES
        assert person not in ties.values()
        assert all(WORLD.ties[other][tie] == person for tie, other in ties.items())


def test_a_document_states_the_ties_of_one_person():
    for person, text in WORLD.texts.items():
        words = text.split()
        assert words.count(person) == NUM_TIES
        assert all(f"{tie} {other} ." in text for tie, other in WORLD.ties[person].items())


def test_a_trail_leads_from_person_to_person_and_never_back():
    rng = random.Random(1)
    for hops in range(1, MAX_HOPS + 1):
        trail = WORLD.draw_trail(rng, hops)
        assert len(set(trail)) == hops + 1
        question = WORLD.question_along(trail)
        assert question.hops == hops
        assert WORLD.true_answer(question) == trail[-1]


def test_the_answer_is_followed_by_hand():
    first = WORLD.names[0]
    tie, second = next(iter(WORLD.ties[first].items()))
    other_tie, third = next(item for item in WORLD.ties[second].items() if item[0] != tie)
    assert WORLD.true_answer(Question(first, (tie, other_tie))) == third
    absent = next(tie for tie in TIES if tie not in WORLD.ties[first])
    assert WORLD.true_answer(Question(first, (absent, tie))) is None
    assert WORLD.true_answer(Question("Nobody", (tie,))) is None
    assert WORLD.true_answer(None) is None


def test_equal_seeds_make_equal_worlds_and_others_do_not():
    assert World(3, 40).texts == World(3, 40).texts
    assert World(3, 40).texts != World(4, 40).texts


def test_held_out_questions_have_each_number_of_hops_equally_often():
    tasks = held_out_tasks(7, 20, 60)
    assert [task.question.hops for task in tasks] == [1, 2, 3, 4, 5] * 4
    assert all(open_world(7, 60).true_answer(task.question) == task.answer for task in tasks)
    assert not set(corpus_texts(7, 60)) & set(corpus_texts(4242, 60))


def corpus_texts(seed: int, size: int) -> list[str]:
    return [document["text"] for document in corpus(seed, size)]


def test_the_truth_is_that_of_the_world_that_an_id_names(place):
    assert TRAILS.tasks and TRAILS.oracle and TRAILS.sound and TRAILS.describe
    tasks = TRAILS.tasks(place, seed=7, num_tasks=10).rows(Task)
    for task in tasks:
        assert TRAILS.sound(task)
        assert TRAILS.oracle(task, f" {task['reference']} ")
        assert not TRAILS.oracle(task, "Baba")
        assert dict(TRAILS.describe(task)) == {"true_reference": 1.0, "hops": task["difficulty"]}
    elsewhere: Any = row("tasks", **{**tasks[4], "document_id": "trail-8-200-0004"})
    assert TRAILS.oracle(elsewhere, tasks[4]["reference"] or "") is not True
    nowhere: Any = row("tasks", text=tasks[0]["text"])
    assert TRAILS.oracle(nowhere, "Baba") is None
    other: Any = row("tasks", text="who is it ?")
    assert not list(TRAILS.describe(other))
    assert world_of("cluster-7-200-1") is None


def test_documents_of_the_held_out_questions_are_those_that_are_searched(place):
    assert TRAILS.documents and TRAILS.tasks and TRAILS.num_held_out_documents
    documents = TRAILS.documents(place, seed=7, size=TRAILS.num_held_out_documents).rows()
    titles = {document["title"] for document in documents}
    tasks = TRAILS.tasks(place, seed=7, num_tasks=5).rows(Task)
    for task in tasks:
        question = parse_question(task["text"] or "")
        assert question and {question.person, task["reference"]} <= titles


@pytest.mark.parametrize("draw", DRAWS)
def test_transcripts_have_only_words_of_the_vocabulary(draw):
    rng = random.Random(5)
    for _ in range(40):
        assert set(text_of(draw(DRAWN, rng)).split()) <= set(TRAIL_WORDS)


def test_a_sound_proposer_asks_a_valid_question_for_its_answer():
    rng = random.Random(3)
    for _ in range(60):
        transcript = proposer(DRAWN, rng, SOUND)
        *searches, last = spoken(transcript)
        prompt = transcript.trunk[0][0].split()
        answer = prompt[prompt.index("answer") + 2]
        queries = [element(turn, "search") for turn in searches]
        question = parse_question(element(last, "question"))
        assert question is not None
        assert queries[0] == answer and queries[-1] == question.person
        assert len(queries) == question.hops + 1 <= int(prompt[prompt.index("search") + 1]) + 1
        assert WORLD.true_answer(question) == answer
        passes = rules(
            write_question(question),
            answer,
            queries,
            min_words=5,
            max_characters=1000,
            min_searches=2,
        )
        assert all(passes.values())


def test_a_sound_solver_answers_after_as_many_searches_as_there_are_hops():
    rng = random.Random(3)
    early = 0
    for _ in range(60):
        transcript = solver(DRAWN, rng, SOUND)
        *searches, last = spoken(transcript)
        question = question_in(transcript)
        truth = WORLD.true_answer(question)
        if "answer now" in text_of(transcript) and len(searches) < question.hops:
            early += 1
            continue
        assert element(last, "answer") == (truth or "unknown")
        assert truth is None or len(searches) == question.hops
    assert early < 20


def test_a_checker_answers_from_its_documents_and_says_what_it_does_not_find():
    rng = random.Random(3)
    answers = []
    for _ in range(80):
        transcript = checker(DRAWN, rng)
        (reply,) = spoken(transcript)
        truth = WORLD.true_answer(question_in(transcript))
        assert element(reply, "answer") == (truth or "unknown")
        answers.append(truth)
    assert None in answers


def question_in(transcript: Transcript) -> Question:
    prompt = transcript.trunk[0][0].split(" <|im_end|>")[0]
    question = parse_question(prompt[prompt.index("who is") :])
    assert question is not None
    return question


def test_the_mediocre_solver_stops_too_early_the_more_often_the_further_it_has_come():
    assert list(MEDIOCRE.goes_on) == sorted(MEDIOCRE.goes_on, reverse=True)
    assert shares_right(MEDIOCRE, hops=1) > shares_right(MEDIOCRE, hops=3)


def shares_right(habits: Habits, hops: int) -> float:
    rng = random.Random(1)
    right = []
    while len(right) < 60:
        transcript = solver(DRAWN, rng, habits)
        question = question_in(transcript)
        truth = WORLD.true_answer(question)
        if question.hops == hops and truth is not None:
            right.append(f"<answer> {truth} " in f"{spoken(transcript)[-1]} ")
    return sum(right) / len(right)


@pytest.mark.slow
def test_the_committed_checkpoint_holds_its_bars():
    assert passed(trail_bars(load_checkpoint(SSP)))
