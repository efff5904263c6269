"""Search Self-Play in the world of trails: its profile, its prompts, and what is measured there."""

from __future__ import annotations

from typing import Any

import pytest

from data.micro.training.trail_transcripts import NUM_SEARCHES, found, user
from flows.run import Run
from flows.settings import profile
from flows.ssp.config import Config
from flows.ssp.measures import measure_answers, measure_questions, score_held_out
from flows.ssp.roles import Roles
from flows.ssp.steps import open_documents_with_titles
from flows.worlds.built_in import TRAILS
from flows.worlds.trails import MAX_HOPS, Question, write_question
from tasks.rollouts.dialogue import say
from tests.support.rows import row
from warehouse.store import Place

NAMES = profile.names(profile.home(Config) / "profiles")


def load(**changes: object) -> Config:
    return profile.load(Config, "micro", changes)


def test_the_shipped_profiles_are_micro_smollm2_and_one_model_on_eight_gpus_or_one() -> None:
    model = "qwen2.5-7b-instruct"
    assert set(NAMES) == {"micro", "smollm2", f"{model}-1gpu", f"{model}-8gpu"}


def test_conversations_have_room_for_the_longest_trail() -> None:
    cfg = load()
    assert cfg.dialogues.proposer_turns - 1 == NUM_SEARCHES == MAX_HOPS + 1
    assert cfg.dialogues.solver_turns - 1 == MAX_HOPS
    assert cfg.proposer.hops == {MAX_HOPS: 1}
    shortest = write_question(Question("Baba", ("friend",)))
    assert cfg.proposer.min_words == len(shortest.split())


def test_prompts_are_worded_as_in_training() -> None:
    roles = Roles(load())
    shown = roles.proposer.templates[0].render(dict(roles.proposer.values), answer="Baba", hops=5)
    assert user("proposer", answer="Baba", hops=5)[0].split()[2:-3] == shown.split()
    text = "Baba has friend Lomi ."
    results = say(roles.solver.dialogue.results, documents=[{"title": "Baba", "text": text}])
    message = say(roles.solver.dialogue.searched, results=results, searches_left=3)
    assert found("searched", text)[0].split()[2:-3] == message.split()
    assert message.split()[-1] == "</information>"
    last = say(roles.solver.dialogue.searched_out, results=results, searches_left=0)
    assert last.split()[-2:] == ["answer", "now"]


def test_the_documents_of_a_run_are_those_of_its_world(place: Place) -> None:
    cfg = load(corpus_documents=40)
    rows = open_documents_with_titles(Run(cfg, place)).rows()
    assert len(rows) == 40
    assert {document["document_id"].rpartition("-")[0] for document in rows} == {"trail-4242-40"}


def test_a_world_as_corpus_needs_a_run_that_lives_in_it(place: Place) -> None:
    with pytest.raises(ValueError, match="corpus 'micro' belongs to a built-in world that is not"):
        open_documents_with_titles(Run(load(world=None), place))


def test_training_on_the_held_out_world_is_refused() -> None:
    with pytest.raises(ValueError, match=r"world_seed and evaluation\.seed are both 7"):
        load(world_seed=7)


def test_held_out_questions_need_a_world_that_has_documents_for_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.ssp.measures.score_benchmarks", lambda *_: None)
    cfg = load(world="clusters")
    run = Run(cfg, place)
    with pytest.raises(ValueError, match=r"evaluation\.benchmark is 'micro'"):
        score_held_out(run, Roles(cfg), place, None, None)  # pyright: ignore[reportArgumentType]


def test_held_out_scores_are_given_by_hops() -> None:
    tasks: Any = [
        row("tasks", task_id=str(number), difficulty=hops) for number, hops in enumerate((1, 1, 3))
    ]
    answers: Any = [
        row("answers", task_id="0", rollout_id="a", answer="Baba", num_searches=1),
        row("answers", task_id="1", rollout_id="b", answer="Lomi", num_searches=2),
        row("answers", task_id="2", rollout_id="c", answer=None, num_searches=0),
    ]
    matches: Any = [
        row("matches", rollout_id="a", matched=True),
        row("matches", rollout_id="b", matched=False),
    ]
    measured = list(measure_answers(tasks, answers, matches))
    assert [value for metric, value in measured if metric == "score"] == [1.0, 0.0, 0.0]
    assert [value for metric, value in measured if metric == "score_1_hops"] == [1.0, 0.0]
    assert [value for metric, value in measured if metric == "score_3_hops"] == [0.0]
    assert [value for metric, value in measured if metric == "searches"] == [1.0, 2.0, 0.0]
    assert [value for metric, value in measured if metric == "unanswered"] == [0.0, 0.0, 1.0]


def test_questions_are_described_by_their_hops_and_their_truth(place: Place) -> None:
    """The first question is valid and solved by one of four, the second has another answer, the
    third is no question."""
    assert TRAILS.tasks and TRAILS.describe
    first, second = TRAILS.tasks(place, seed=7, num_tasks=2).rows()
    tasks: Any = [
        row("tasks", **{**first, "task_id": "1"}),
        row("tasks", **{**second, "task_id": "2", "reference": "Baba"}),
        row("tasks", task_id="3", text=None),
    ]
    selections: Any = [
        row("selections", task_id="1", kept=True),
        row("selections", task_id="2", kept=False),
        row("selections", task_id="3", kept=False),
    ]
    rewards: Any = [
        row("rewards", task_id="1", score=0.25),
        row("rewards", task_id="2", score=None),
    ]
    measured = measure_questions(tasks, selections, rewards, describe=TRAILS.describe)
    of: dict[str, list[float]] = {}
    for metric, value in measured:
        of.setdefault(metric, []).append(value)
    assert of == {
        "valid": [1.0, 0.0, 0.0],
        "true_reference": [1.0, 0.0],
        "hops": [1.0, 2.0],
        "valid_true_reference": [1.0],
        "valid_hops": [1.0],
        "success": [0.25],
    }
