"""The micro-world of clusters: questions that a rule can check, and transcripts in a closed
vocabulary."""

import random
from functools import partial

import pytest

from data.micro.training import asking, reading
from data.micro.training.bars import passed
from data.micro.training.model import load_checkpoint
from data.micro.training.reading import MEDIOCRE, MORE_WORDS, SOUND, opened, render
from data.micro.training.reading_bars import SPELL, reading_bars
from data.micro.training.tokenizer import WORDS
from data.micro.training.transcripts import Transcript
from flows.spell.readers import read_answer, read_question
from flows.worlds.built_in import CLUSTERS
from flows.worlds.clusters import (
    GOODS,
    MAX_HOPS,
    SIZE,
    Cluster,
    Question,
    cluster_rows,
    parse_question,
    same_answer,
    world_cluster,
    write_question,
)
from flows.worlds.encyclopaedia import NAMES, World

E = NAMES[0]
F = NAMES[1]
DRAWS = [
    partial(draw, habits=habits)
    for habits in (SOUND, MEDIOCRE)
    for draw in (asking.questioner, reading.responder, reading.verifier)
] + [reading.responder_without_documents, reading.small_skills]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (f"what is the craft of {E} ?", Question("craft", E)),
        (
            f"what is the tree of the ally of the ruler of {E} ?",
            Question("tree", E, ("ruler", "ally")),
        ),
        (
            f"how many gold is twice that of the rival of {E} ?",
            Question("gold", E, ("rival",), "twice"),
        ),
    ],
)
def test_a_question_reads_back_as_it_was_written(text, question):
    assert parse_question(text) == question
    assert write_question(question) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"what is the gold of {E} ?",
        f"what is the craft of {E}",
        f"how many craft is twice that of {E} ?",
        f"how many gold is thrice that of {E} ?",
        f"what is the craft of the friend of {E} ?",
        f"what is the craft of {E} ? [[YES]]",
    ],
)
def test_what_is_not_of_the_grammar_is_no_question(text):
    assert parse_question(text) is None


def test_answers_follow_links_and_calculate():
    cluster = Cluster(5)
    name = cluster.names[0]
    link = cluster.links(name)[0]
    to = cluster.facts[name][link]
    attribute = cluster.attributes(to)[0]
    good = cluster.goods[0]
    assert cluster.true_answer(Question(attribute, name, (link,))) == cluster.facts[to][attribute]
    amount = int(cluster.facts[to][good])
    for operation, expected in (
        ("twice", 2 * amount),
        ("one-over", amount + 1),
        ("ten-over", amount + 10),
    ):
        assert cluster.true_answer(Question(good, name, (link,), operation)) == str(expected)


def test_what_is_not_so_has_no_answer():
    cluster = Cluster(5)
    name = cluster.names[0]
    absent = next(
        r for r in ("ruler", "founder", "teacher", "rival") if r not in cluster.facts[name]
    )
    assert cluster.true_answer(Question("craft", name, (absent,))) is None
    assert cluster.true_answer(Question("craft", "Nowhere")) is None
    assert cluster.true_answer(None) is None


def test_a_cluster_is_six_documents_that_know_each_other_and_share_two_goods():
    cluster = world_cluster(42, 3)
    assert len(cluster.names) == len(cluster.texts) == SIZE
    for name in cluster.names:
        assert {cluster.facts[name][link] for link in cluster.links(name)} <= set(cluster.names) - {
            name
        }
        assert [r for r in cluster.facts[name] if r in GOODS] == list(cluster.goods)
        assert all(value in cluster.texts[name].split() for value in cluster.facts[name].values())


def test_worlds_share_no_cluster_and_none_is_drawn_in_training():
    rows = [{d["text"] for _, d in cluster_rows(seed, 30)} for seed in (7, 42)]
    assert len(rows[0]) == len(rows[1]) == 30 * SIZE and not rows[0] & rows[1]
    assert world_cluster(0, 0).seed >= 2**31


@pytest.mark.parametrize("finance", [False, True])
@pytest.mark.parametrize("hops", range(MAX_HOPS + 1))
def test_drawn_questions_have_a_true_answer_and_stay_among_the_documents_shown(finance, hops):
    rng = random.Random(hops)
    for seed in range(30):
        cluster = Cluster(seed)
        shown = rng.sample(cluster.names, 3)
        question = cluster.draw_question(rng, finance, hops, shown)
        assert cluster.true_answer(question) is not None
        chain = cluster.chain(question.entity, question.links)
        assert chain and set(chain) <= set(shown) and question.hops <= hops


def segments(transcript: Transcript) -> list[tuple[str, float]]:
    return [s for part in [transcript.trunk, *transcript.branches] for s in part]


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: getattr(draw, "func", draw).__name__)
def test_every_word_of_a_transcript_is_in_the_vocabulary(draw):
    rng = random.Random(4)
    words = set(MORE_WORDS)
    for _ in range(60):
        said = segments(draw(World(1, 4), rng))
        assert {word for text, _ in said for word in text.split()} <= words
        assert any(weight >= 1.0 for _, weight in said)


def test_more_words_follow_those_of_the_first_models():
    assert MORE_WORDS[: len(WORDS)] == WORDS
    assert len(set(MORE_WORDS)) == len(MORE_WORDS)


def test_a_branch_is_a_prompt_as_the_pipeline_renders_it():
    prompts = [render("verifier", question="who ?", answer=a, reference="B") for a in "ABC"]
    made = reading.branched(prompts, [[(f"reply {i}", 1.0)] for i in range(3)])
    for prompt, branch in zip(prompts, made.branches, strict=True):
        assert " ".join([made.trunk[0][0], branch[0][0]]) == opened(prompt)


def test_a_sound_players_replies_are_read_as_true():
    rng = random.Random(3)
    for _ in range(20):
        made = asking.questioner(World(1, 4), rng, SOUND)
        for branch in made.branches:
            reply = " ".join(text for text, weight in branch if weight).removesuffix("<|im_end|>")
            task_type = (
                "multiple_choice"
                if "options" in reply
                else "finance_math"
                if "how many" in reply
                else "general_qa"
            )
            found = read_question(reply, task_type, lambda text: len(text.split()))
            assert parse_question(found["text"]) is not None


@pytest.mark.parametrize(
    ("reply", "reference", "right"),
    [
        ("the answer is twelve", "12", True),
        ("the answer is 12", "12", True),
        ("the answer is 21", "12", False),
    ],
)
def test_numbers_in_words_are_the_numbers(reply, reference, right):
    answer = read_answer(reply)
    assert same_answer(answer, reference) is right
    assert CLUSTERS.compare is not None
    assert CLUSTERS.compare({"reference": reference}, answer) is right


@pytest.mark.slow
def test_the_committed_checkpoint_holds_its_bars():
    assert passed(reading_bars(load_checkpoint(SPELL)))
