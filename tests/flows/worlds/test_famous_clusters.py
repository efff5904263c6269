"""The world in which a model knows by heart what most of its training documents state."""

from __future__ import annotations

import random

import pytest

from data.micro.training import knowing
from data.micro.training.bars import passed
from data.micro.training.knowing_bars import knowing_bars
from data.micro.training.model import load_checkpoint
from flows.blocks.corpora import world_of_corpus
from flows.run import Run
from flows.runtime.store_root import SOURCE
from flows.settings.profile import load
from flows.spell.config import Config as Spell
from flows.spell.steps import open_corpus
from flows.worlds.built_in import BUILT_IN
from flows.worlds.clusters import (
    FAMOUS,
    FamousCluster,
    Question,
    by_heart,
    parse_question,
    write_question,
)
from flows.worlds.encyclopaedia import ATTRIBUTES, LINKS, VALUES, World
from tests.support.rows import row

HELD_OUT = BUILT_IN["famous-clusters"]
TRAINING = HELD_OUT.for_training
MODEL = SOURCE / "data/micro/spell-knowing"


def test_what_is_known_by_heart_is_a_value_of_the_attribute_and_never_changes():
    assert all(by_heart(name, a) in VALUES[a] for name in FAMOUS for a in ATTRIBUTES)
    different = {by_heart(name, "craft") for name in FAMOUS}
    assert len(different) > len(VALUES["craft"]) / 2, "it depends on the entity"


@pytest.mark.parametrize("confirmed", [0.0, 0.8, 1.0])
def test_a_share_of_the_attributes_is_as_known_by_heart(confirmed):
    as_known = []
    for seed in range(100):
        cluster = FamousCluster(seed, confirmed)
        assert set(cluster.names) <= set(FAMOUS)
        as_known += [
            cluster.facts[name][attribute] == by_heart(name, attribute)
            for name in cluster.names
            for attribute in cluster.attributes(name)
        ]
    assert len(as_known) == 1200
    assert sum(as_known) / len(as_known) == pytest.approx(confirmed, abs=0.05)


def test_what_is_remembered_differs_from_the_documents_in_attributes_alone():
    cluster = FamousCluster(5, confirmed=0.0)
    remembered = cluster.as_remembered()
    for name, facts in cluster.facts.items():
        for relation, value in facts.items():
            assert (remembered[name][relation] == value) == (relation not in ATTRIBUTES)
        assert [r for r in facts if r in LINKS] == cluster.links(name)


def answered(world, place, by_heart_alone):
    """The verdicts of a world's oracle on answers to questions about the first 20 clusters: those
    known by heart, or those that the documents state."""
    documents = world.documents(place, seed=3, size=20)
    verdicts = []
    for document in documents.rows():
        name = document["title"]
        words = document["text"].split()
        for attribute in set(ATTRIBUTES) & set(words):
            stated = words[words.index(attribute) + 1]
            task = row(
                "tasks",
                task_id="t",
                document_id=document["document_id"],
                text=write_question(Question(attribute, name)),
                reference=stated,
            )
            assert world.sound(task), "documents and oracle are of the same clusters"
            answer = by_heart(name, attribute) if by_heart_alone else stated
            verdicts.append(world.oracle(task, answer))
    assert len(verdicts) == 240
    return verdicts


def test_to_learn_from_what_is_known_is_mostly_true(place):
    assert all(answered(TRAINING, place, by_heart_alone=False))
    known = answered(TRAINING, place, by_heart_alone=True)
    assert sum(known) / len(known) == pytest.approx(0.8, abs=0.08)


def test_held_out_documents_contradict_what_is_known(place):
    tasks = HELD_OUT.tasks(place, seed=7, num_tasks=90).rows()
    contexts = {
        r["document_id"]: r["text"] for r in HELD_OUT.contexts(place, seed=7, num_tasks=90).rows()
    }
    asked = 0
    for task in tasks:
        question = parse_question(task["text"])
        assert question is not None
        if task["task_type"] != "general_qa" or question.links:
            continue
        asked += 1
        assert task["reference"] in contexts[task["document_id"]].split()
        assert task["reference"] != by_heart(question.entity, question.relation)
    assert asked == 10


def test_a_run_learns_from_the_documents_to_train_on(place):
    run = Run(load(Spell, "micro-known"), place)
    assert world_of_corpus(run, "micro") is TRAINING
    texts = {r["text"] for table in open_corpus(run).documents for r in table.rows()}
    of_training = TRAINING.documents(place, seed=run.cfg.world_seed, size=run.cfg.clusters.in_world)
    assert texts == {r["text"] for r in of_training.rows()}


@pytest.mark.parametrize(
    "draw", [knowing.responder, knowing.responder_without_documents, knowing.reciter]
)
def test_transcripts_use_the_words_that_the_model_knows(draw):
    transcript = draw(World(1, 40), random.Random(0))
    said = {
        word
        for segments in (transcript.trunk, *transcript.branches)
        for text, _ in segments
        for word in text.split()
    }
    assert said <= set(knowing.KNOWING_WORDS)


@pytest.mark.slow
def test_the_committed_checkpoint_holds_its_bars():
    assert passed(knowing_bars(load_checkpoint(MODEL)))
