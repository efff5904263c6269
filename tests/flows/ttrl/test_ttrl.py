"""TTRL's settings, and its flow once over a scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.settings import profile
from flows.ttrl.config import Config
from flows.ttrl.flow import ttrl_iteration
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.schemas import LABELS, MATCHES
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
