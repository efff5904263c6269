"""TTRL's settings, and its flow once over a scripted engine."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from flows.settings import profile
from flows.ttrl.config import Config
from flows.ttrl.flow import ttrl_iteration
from tasks.monitors.monitor import Alarm
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.schemas import EVALUATIONS, LABELS, MATCHES, UPDATES
from warehouse.store import Store

SETTINGS = {
    "iterations": 1,
    "steps": 1,
    "questions_per_step": 1,
    "group_size": 3,
    "num_engines": 1,
    "world": None,
    "dialogues.prompts": "english",
    "dialogues.response_tokens": 64,
    "engine.max_model_len": 1024,
    "evaluation.benchmark": "none",
    "match.time_limit_s": 3.5,
    "monitor.max_sampler_kl": None,  # a script samples nothing
}


def say(asked: Asked) -> str:
    return f"So \\boxed{{{[71, 17, 71][asked.sample]}}}."


def test_votes_and_comparisons_have_the_time_that_the_settings_allow(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"question": "What is 23 + 48?"}) + "\n")
    model = str(any_text_model(tmp_path / "model"))
    given = {"models.base": model, "engine.model": model, "questions": str(questions)}
    store = Store(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(say), patch)
        ttrl_iteration("micro", "r", {**SETTINGS, **given})
    [labels] = store.tables("r", LABELS)
    [matches] = store.tables("r", MATCHES)
    assert [row["answer"] for row in labels.rows()] == ["71"]
    assert [row["matched"] for row in matches.rows()] == [True, False, True]
    for table in (labels, matches):
        assert table.recipe["params"]["time_limit_s"] == 3.5


@pytest.mark.parametrize(("num_alike", "stops"), [(6, False), (7, True)])
def test_a_policy_that_says_the_same_to_every_question_is_not_trained(
    tmp_path: Path, num_alike: int, stops: bool
) -> None:
    """More than 0.8 of the labels of eight questions."""
    questions = tmp_path / "questions.jsonl"
    texts = [f"What is {n} + 1?" for n in range(8)]
    questions.write_text("".join(json.dumps({"question": text}) + "\n" for text in texts))

    def say(asked: Asked) -> str:
        (number,) = (n for n, text in enumerate(texts) if text in asked.text)
        said = 5 if number < num_alike else number + 100
        return f"So \\boxed{{{said + (asked.sample == 2)}}}."

    model = str(any_text_model(tmp_path / "model"))
    given = {
        "models.base": model,
        "engine.model": model,
        "questions": str(questions),
        "questions_per_step": 8,
    }
    store = Store(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(say), patch)
        with pytest.raises(Alarm, match=r"monitor\.max_same_label") if stops else nullcontext():
            ttrl_iteration("micro", "r", {**SETTINGS, **given})
    assert len(list(store.tables("r", UPDATES))) == (0 if stops else 1)
    [watched] = [t for t in store.tables("r", EVALUATIONS) if t.address.endswith(".same-labels")]
    assert [row["score"] for row in watched.rows()] == [num_alike / 8]


def test_the_defaults_are_those_of_the_released_script() -> None:
    cfg = Config.model_validate({"models": {"base": "m"}, "engine": {"max_model_len": 8192}})
    update = cfg.update
    assert (cfg.questions_per_step, cfg.group_size) == (8, 64)
    assert (update.learning_rate, update.beta, update.optimizer_steps) == (5e-7, 1e-3, 8)


@pytest.mark.parametrize(
    ("name", "questions", "answers"), [("micro", 32, 16), ("smollm2", 16, 8), ("sums", 16, 8)]
)
def test_profiles_of_small_models_make_one_step_without_a_kl_term(
    name: str, questions: int, answers: int
) -> None:
    cfg = profile.load(Config, name, {})
    assert (cfg.questions_per_step, cfg.group_size) == (questions, answers)
    assert (cfg.update.beta, cfg.update.optimizer_steps) == (0.0, 1)
