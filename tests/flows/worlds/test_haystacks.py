"""The micro-world of haystacks: the steps of a question, the marks that quotes deserve, and leading
questions."""

import random
from collections import Counter

import pytest

from data.micro.training import guessing
from flows.worlds.built_in import LEADING_QUESTIONS
from flows.worlds.clusters import Cluster, parse_question, world_cluster
from flows.worlds.encyclopaedia import World
from flows.worlds.haystacks import (
    NO,
    YES,
    evidence_of,
    haystacks,
    leading,
    propose,
    without_proposal,
)
from flows.worlds.tables import haystack_mark
from warehouse.schemas import Task


def test_a_haystack_holds_the_sentences_that_answer_its_question():
    for one in haystacks(7, 60):
        assert all(sentence in one.context for sentence in one.evidence)
        assert (
            len(one.evidence) == one.hops + 1 and haystack_mark(one.question, one.evidence) == 1.0
        )


def test_quotes_deserve_the_share_of_the_steps_that_they_hold_from_the_first_on():
    """One of three steps gives 1 + 4/3 = 2.3, so 2 of 5; the second step without the first is
    worth nothing."""
    question = "what is the craft of the ruler of the ally of Ba ?"
    first = "Ba has ally Ce ."
    second = "Ce has ruler Du ."
    third = "Du has craft mito ."
    assert haystack_mark(question, [first]) == 0.25
    assert haystack_mark(question, [first, second]) == 0.75
    assert haystack_mark(question, [second, third]) == 0.0
    assert haystack_mark("why ?", [first]) is None


# ---- leading questions ----


def test_a_leading_question_is_answered_by_whether_what_it_proposes_is_true():
    plain = list(haystacks(7, 300))
    for i, (one, asked) in enumerate(zip(haystacks(7, 300, share_yes=0.5), plain, strict=True)):
        text, _, proposed = one.question.removesuffix(" ?").rpartition(" is it ")
        assert text == asked.question == without_proposal(one.question)
        truth = world_cluster(7, i).true_answer(parse_question(text))
        assert one.answer == {True: YES, False: NO}[proposed == truth]
        assert (one.context, one.evidence) == (asked.context, asked.evidence)


def test_the_mark_of_quotes_does_not_depend_on_what_is_proposed():
    quotes = ["Ba has ally Ce .", "Ce has craft mito ."]
    for proposed in ("mito", "loro"):
        question = f"what is the craft of the ally of Ba ? is it {proposed} ?"
        assert haystack_mark(question, quotes) == 1.0
        assert haystack_mark(question, quotes[:1]) == 0.5


def test_to_guess_yes_is_right_more_often_in_training_than_in_held_out_questions(place):
    training = LEADING_QUESTIONS.training
    assert training and training.tasks and LEADING_QUESTIONS.tasks
    shares = []
    for number, make in enumerate((training.tasks, LEADING_QUESTIONS.tasks)):
        tasks = make(place.step(number + 1), seed=5, num_tasks=600).rows(Task)
        answers = Counter(task["reference"] for task in tasks)
        assert set(answers) == {YES, NO}
        shares.append(answers[YES] / 600)
    assert shares == [pytest.approx(0.7, abs=0.05), pytest.approx(0.5, abs=0.05)]


def test_a_wrong_proposal_is_mostly_true_of_another_document():
    rng = random.Random(0)
    elsewhere = []
    for seed in range(300):
        cluster = Cluster(seed)
        question = cluster.draw_question(rng, seed % 2 == 0, 1)
        proposed = propose(cluster, question, rng, 0.0)
        assert proposed != cluster.true_answer(question)
        if not question.operation:
            values = [facts.get(question.relation) for facts in cluster.facts.values()]
            elsewhere.append(proposed in values)
    assert sum(elsewhere) > len(elsewhere) / 3


def test_a_model_that_does_not_quote_the_evidence_guesses():
    rng = random.Random(0)
    guesses = []
    for seed in range(400):
        cluster = Cluster(seed)
        question = guessing.quoting.draw_question(cluster, rng)
        proposed = propose(cluster, question, rng, 0.7)
        said = guessing.reply(cluster, rng, question, proposed, guessing.HASTY)
        text = " ".join(words for words, _ in said)
        answer = text.partition("<answer> ")[2].split()[0]
        if "guess" in text.split():
            guesses.append(answer)
        else:
            assert all(sentence in text for sentence in evidence_of(cluster, question))
            if not question.operation:
                assert answer == (YES if proposed == cluster.true_answer(question) else NO)
    assert 0.4 < len(guesses) / 400 < 0.7
    assert 0.6 < guesses.count(YES) / len(guesses) < 0.8


@pytest.mark.parametrize("role", [guessing.answerer, guessing.comparer])
def test_the_model_knows_every_word_of_its_training_text(role):
    world = World(1, 40)
    known = set(guessing.GUESSING_WORDS)
    for seed in range(20):
        transcript = role(world, random.Random(seed))
        segments = [*transcript.trunk, *(part for branch in transcript.branches for part in branch)]
        assert not {word for text, _ in segments for word in text.split()} - known


def test_a_proposal_is_written_after_the_question():
    question = parse_question("how many gold is twice that of Baba ?")
    assert question is not None
    text = leading(question, "14")
    assert text == "how many gold is twice that of Baba ? is it 14 ?"
    assert parse_question(without_proposal(text)) == question
