"""What the built-in worlds offer to a run."""

import importlib

import pytest

from flows.app.command.parameters import check_settings, find_deployment
from flows.blocks.corpora import world_of_corpus
from flows.run import Run
from flows.runtime.request import Request
from flows.scope.config import Config as Scope
from flows.scope.steps import rules_named
from flows.settings.profile import load
from flows.ttrl.config import Config as Ttrl
from flows.ttrl.flow import draw_questions, ttrl_iteration
from flows.worlds.built_in import (
    BUILT_IN,
    CLUSTERS,
    ENCYCLOPAEDIA,
    HAYSTACKS,
    LEDGERS,
    MASKED_LEDGERS,
    PROGRAMS,
    TRAILS,
    open_world,
)
from tests.support.rows import row
from warehouse.schemas import Task


def test_every_world_is_opened_by_its_name():
    assert list(BUILT_IN) == [
        "encyclopaedia",
        "clusters",
        "famous-clusters",
        "ledgers",
        "long-ledgers",
        "deep-ledgers",
        "haystacks",
        "leading-questions",
        "programs",
        "trails",
        "masked-ledgers",
    ]
    assert [open_world(name).name for name in BUILT_IN] == list(BUILT_IN)
    with pytest.raises(
        ValueError, match="world: there is no built-in world 'atlantis'; there are encyc"
    ):
        open_world("atlantis")


def test_a_run_in_an_unknown_world_is_refused_before_anything_is_loaded(place):
    request = Request(
        flow="ttrl-iteration", profile="micro", run="r", overrides={"world": "atlantis"}
    )
    with pytest.raises(ValueError, match="there is no built-in world 'atlantis'"):
        ttrl_iteration.run(request)
    with pytest.raises(ValueError, match="there is no built-in world 'atlantis'"):
        check_settings(
            find_deployment("ttrl-iteration", "micro"),
            {"overrides": {"world": "atlantis"}, "profile": "micro"},
        )


def test_the_truth_of_tasks_with_rubrics_depends_on_the_documents(place):
    """The criteria of a held-out task are met by an answer that states them, in the world of the
    held-out tasks alone."""
    assert ENCYCLOPAEDIA.tasks and ENCYCLOPAEDIA.rubrics and ENCYCLOPAEDIA.rubric_truth
    assert ENCYCLOPAEDIA.num_held_out_documents
    (task,) = ENCYCLOPAEDIA.tasks(place, seed=7, num_tasks=1).rows(Task)
    criteria = ENCYCLOPAEDIA.rubrics(place, seed=7, num_tasks=1).rows()
    answer = " ".join(criterion["criterion"].removeprefix("Provides ") for criterion in criteria)
    truth = ENCYCLOPAEDIA.rubric_truth(7, ENCYCLOPAEDIA.num_held_out_documents)
    elsewhere = ENCYCLOPAEDIA.rubric_truth(8, ENCYCLOPAEDIA.num_held_out_documents)
    assert [truth.oracle(c["criterion"], answer) for c in criteria] == [True] * len(criteria)
    assert not all(elsewhere.oracle(c["criterion"], answer) for c in criteria)
    assert truth.sound(task) is True
    assert ENCYCLOPAEDIA.gates["grammar"](task["text"] or "")


def test_held_out_tasks_of_clusters_and_ledgers_have_true_references(place):
    assert LEDGERS.tasks and LEDGERS.oracle and LEDGERS.sound
    tasks = LEDGERS.tasks(place, seed=7, num_tasks=20).rows(Task)
    assert all(
        LEDGERS.sound(task) and LEDGERS.oracle(task, task["reference"] or "") for task in tasks
    )
    assert CLUSTERS.compare
    assert CLUSTERS.compare(row("tasks", reference="12"), " twelve ")
    assert not CLUSTERS.compare(row("tasks", reference="12"), "21")


def test_the_truth_of_a_second_question_about_a_cluster_is_known(place):
    """The first 1,000 held-out questions are about as many clusters."""
    assert CLUSTERS.tasks and CLUSTERS.contexts and CLUSTERS.oracle
    tasks = list(CLUSTERS.tasks(place, seed=7, num_tasks=1003).rows(Task))
    contexts = CLUSTERS.contexts(place, seed=7, num_tasks=1003).rows()
    assert [task["document_id"] for task in tasks] == [c["document_id"] for c in contexts]
    assert len({task["task_id"] for task in tasks}) == 1003
    assert contexts[1000]["text"] == contexts[0]["text"]
    assert all(CLUSTERS.oracle(task, task["reference"] or "") for task in tasks)


def test_a_question_about_ledgers_is_described_by_its_truth_and_its_length():
    assert LEDGERS.describe
    text = "Nuvihi has 5 vizuri and 8 juviin . how many in all ?"
    measured = dict(LEDGERS.describe(row("tasks", text=text, reference="12")))
    assert measured == {"true_reference": 0.0, "items": 2.0}
    assert not list(LEDGERS.describe(row("tasks", text="how many in all ?", reference="12")))


def test_a_corpus_of_the_ledgers_is_made_under_its_name(place):
    assert LEDGERS.documents
    names = LEDGERS.corpora
    assert names == ("micro", "micro-mathematics", "micro-general")
    ids = [
        LEDGERS.documents(place, name, seed=1, size=2, label=name).rows()[0]["document_id"]
        for name in names
    ]
    assert ids == ["micro-1-0000", "micro-mathematics-1-0000", "micro-general-1-0000"]


@pytest.mark.parametrize(
    ("method", "world"),
    [
        ("scope", ENCYCLOPAEDIA),
        ("spell", CLUSTERS),
        ("spice", LEDGERS),
        ("rzero", LEDGERS),
        ("mae", LEDGERS),
        ("eapo", HAYSTACKS),
        ("ttrl", LEDGERS),
        ("azr", PROGRAMS),
        ("ssp", TRAILS),
        ("goose", MASKED_LEDGERS),
    ],
)
def test_the_micro_profiles_live_in_a_world_that_offers_their_corpora(method, world):
    config = importlib.import_module(f"flows.{method}.config").Config
    cfg = load(config, "micro")
    assert cfg.world == world.name
    assert set(cfg.worlds) <= set(world.corpora)


def test_a_built_in_corpus_is_of_the_world_of_the_run(place):
    assert world_of_corpus(Run(load(Scope, "micro"), place), "micro") is ENCYCLOPAEDIA
    assert world_of_corpus(Run(load(Scope, "micro"), place), "a/folder") is None
    for world in (None, "haystacks"):
        run = Run(load(Scope, "micro", {"world": world}), place)
        with pytest.raises(ValueError, match="corpus 'micro' belongs to a built-in world that is"):
            world_of_corpus(run, "micro")


def test_a_rule_of_a_world_is_needed_only_if_it_is_named():
    assert list(rules_named(["repeats", "grammar"], ENCYCLOPAEDIA)) == ["repeats", "grammar"]
    assert list(rules_named(["repeats"], None)) == ["repeats"]
    with pytest.raises(
        ValueError, match=r"judge\.rule_gates names 'grammar', a rule of a built-in"
    ):
        rules_named(["grammar"], None)


def test_questions_without_a_file_are_those_of_the_world_but_no_held_out_ones(place):
    """Held-out questions have seeds below 1,000."""
    assert LEDGERS.tasks is not None
    drawn = draw_questions(Run(load(Ttrl, "micro"), place), place.step(1), 3)
    assert drawn.rows() == LEDGERS.tasks(place.step(2), seed=1003, num_tasks=32).rows()
    nowhere = Run(load(Ttrl, "micro", {"world": None}), place)
    with pytest.raises(ValueError, match="there is nothing to ask: give questions=FILE, or a"):
        draw_questions(nowhere, place.step(3), 3)
