"""Table 4 of SCOPE's paper: one checkpoint's last turn after another's searches."""

import json
from pathlib import Path

import pytest

from flows.blocks.corpora import open_documents
from flows.blocks.evaluation import open_evaluation
from flows.method import opened
from flows.scope.config import Config
from flows.scope.held_out import after_searches, replay_benchmark
from flows.settings import profile
from tests.support.rows import row, turn
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store

ENTRY = """
title = "a question"
file = "one.jsonl"
licence = "MIT"
prompt = "short"
scorer = "short"
columns = { question = ["q"], answers = ["a"] }
protocol = { own = { searches = 2, response_tokens = 64 } }
"""


@pytest.mark.parametrize(
    ("reasoning", "said"),
    [(False, "<think>Where?</think> <search>moon</search>"), (True, "<search>moon</search>")],
)
def test_searches_are_replayed_as_the_model_that_made_them_saw_them(reasoning, said):
    asked = [{"role": "user", "content": "Where is it?"}]
    searched = turn(
        "<think>Where?</think> <search>moon</search>", message="It is up.", message_role="tool"
    )
    given = [row("prompts", prompt_id="p", task_id="t", messages=asked)]
    rollouts = [row("rollouts", prompt_id="p", turns=[searched, turn("<answer>down</answer>")])]
    (replayed,) = after_searches(given, rollouts, reasoning=reasoning)
    assert replayed["messages"] == [
        *asked,
        {"role": "assistant", "content": said},
        {"role": "tool", "content": "It is up."},
    ]
    assert replayed["task_id"] == "t"


def say(asked: Asked) -> str:
    """Who searched answers wrongly; who goes on from what was found answers rightly."""
    if asked.turn == 1:
        return "<answer>a hill</answer>"
    return "<answer>Kenia</answer>" if "Tall" in asked.text else "<search>mountains</search>"


def test_a_benchmark_is_answered_again_after_the_searches_of_another_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.toml").write_text(ENTRY)
    (tmp_path / "one.jsonl").write_text(json.dumps({"q": "Which mountain?", "a": ["Kenia"]}))
    library = tmp_path / "library.jsonl"
    library.write_text(json.dumps({"id": "d", "title": "Mountains", "text": "Tall mountains."}))
    perform(Script(say), monkeypatch)
    model = str(any_text_model(tmp_path / "model"))
    settings = {
        "models.base": model,
        "engine.model": model,
        "models.grader": model,
        "engine.max_model_len": 4096,
        "evaluation.folder": str(tmp_path),
        "evaluation.benchmarks": [str(tmp_path / "one.toml")],
        "evaluation.replay": [[1, 3]],
    }
    cfg = profile.load(Config, "micro", settings)
    store = Store(tmp_path / "store")
    with opened(cfg, store, "r", begins=False) as run:
        documents = open_documents(run.place, str(library), label="searched")
        name = str(tmp_path / "one.toml")
        evaluation = open_evaluation(run, name, documents)
        evaluation.evaluate(run.place.iteration(1), run.player("solver").policy)
        replay_benchmark(run, documents, name, searcher=1, answerer=3)
    scores = query(
        store.root,
        "select iteration, benchmark, score from evaluations where metric = 'em' order by 1",
    )
    assert [tuple(each.values()) for each in scores] == [
        (1, "one", 0.0),
        (3, "one, searches of 1", 1.0),
    ]
    turns = query(store.root, "select num_turns, num_searches from rollouts order by iteration")
    assert [tuple(each.values()) for each in turns] == [(2, 1), (1, 0)]
