"""A run that starts from what another run has learnt: the engine is scripted, updates are real."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command.candidates import own_run
from flows.app.command.cli import main
from flows.runtime.start import open_start
from flows.settings.profile import MethodSettings
from flows.spell.flow import spell_iteration
from tasks.models.engine import Policy
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store

GENERAL = "general_qa"
LINES = [
    {
        "id": name,
        "task_type": GENERAL,
        "answer": answer,
        "context": f"Of {name}.",
        "question": f"What is the capital of {name}?",
    }
    for name, answer in (("one", "Rome"), ("two", "Oslo"), ("three", "Bern"), ("four", "Riga"))
]
QUIZ = """
title = "four capitals"
file = "questions.jsonl"
licence = "MIT"
prompt = "short"
scorer = "short"

[columns]
question = ["question"]
answers = ["answer"]
context = ["context"]

[protocol.one]
response_tokens = 64
"""
LORA = {"rank": 2, "alpha": 4}
SETTINGS: dict[str, Any] = {
    "iterations": 1,
    "steps": 1,
    "group_size": 2,
    "task_types": [GENERAL],
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.input_tokens": 1024,
    "dialogues.response_tokens": 256,
    "sampling.groups": 2,
    "sampling.clusters_per_round": 4,
    "sampling.max_rounds": 1,
    "evaluation.probe_answers": 0,
    "evaluation.input_tokens": [1024],
    "evaluation.samples": 1,
    "update.lora": LORA,
    "engine.max_model_len": 2048,
    "engine.max_lora_rank": 2,
}


def half_right(asked: Asked) -> str:
    right = next((line["answer"] for line in LINES if f"Of {line['id']}." in asked.text), "Rome")
    return f"The answer is {right if asked.sample == 0 else 'Paris'}."


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    any_text_model(tmp_path / "model")
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    perform(Script(half_right), monkeypatch)
    return tmp_path


def play(site: Path, run: str, **settings: Any) -> None:
    own = {
        "models.base": str(site / "model"),
        "engine.model": str(site / "model"),
        "given": str(site / "questions.jsonl"),
        "evaluation.benchmark": str(site / "questions.jsonl"),
    }
    spell_iteration("micro-rlvr", run, {**SETTINGS, **own, **settings})


def rows(site: Path, sql: str) -> list[dict[str, Any]]:
    return query(site / "store", sql)


@pytest.mark.parametrize("lora", [LORA, None], ids=["adapter", "full weights"])
def test_a_run_starts_where_another_ended(site, lora):
    play(site, "first", **{"update.lora": lora})
    play(site, "second", **{"update.lora": lora, "models.start": "first"})
    [learnt] = rows(site, "select distinct policy from updates where run = 'first'")
    sampled = rows(
        site,
        "select distinct policy from rollouts where run = 'second' and coalesce(iteration, 0) < 2"
        " and phase = 'play'",
    )
    assert sampled == [learnt]
    [before] = rows(
        site, "select distinct policy from evaluations where run = 'second' and iteration = 0"
    )
    assert before == learnt
    [update] = rows(site, "select distinct parent from updates where run = 'second'")
    assert update["parent"] == learnt["policy"]
    [start] = rows(site, "select policy from policies where run = 'second' and role = 'start'")
    assert start == learnt


def test_the_adapter_is_trained_on_and_the_first_run_keeps_its_own(site):
    play(site, "first")
    files = Store(site / "store").folder("first").rglob("adapter_model.safetensors")
    before = {file: file.read_bytes() for file in files}
    play(site, "second", **{"models.start": "first", "keep_checkpoints": "last"})
    assert before and all(file.read_bytes() == content for file, content in before.items())
    second = Store(site / "store").folder("second").rglob("adapter_model.safetensors")
    assert all(file.read_bytes() not in before.values() for file in second)


def test_an_adapter_of_any_folder_is_a_start(site):
    play(site, "first")
    [made] = Store(site / "store").folder("first").rglob("adapter_config.json")
    shutil.copytree(made.parent, site / "taken")
    play(site, "second", **{"models.start": str(site / "taken")})
    sampled = rows(site, "select distinct policy from rollouts where run = 'second' and step = 1")
    assert sampled == [{"policy": "taken"}]


def test_an_adapter_that_does_not_state_its_shape_is_refused(site):
    play(site, "first")
    [made] = Store(site / "store").folder("first").rglob("adapter_config.json")
    taken = Path(shutil.copytree(made.parent, site / "taken")) / made.name
    config = json.loads(taken.read_text())
    taken.write_text(json.dumps({key: config[key] for key in config.keys() - {"lora_alpha"}}))
    with pytest.raises(ValueError, match=r"adapter_config\.json has no lora_alpha: add it"):
        play(site, "second", **{"models.start": str(taken.parent)})


@pytest.mark.parametrize(
    ("start", "settings", "why"),
    [
        ("nowhere", {}, "neither a run nor the folder of a LoRA adapter"),
        ("first/solver", {}, "trains no solver: it trains policy"),
        (
            "first",
            {"update.lora": {"rank": 1, "alpha": 4}},
            r"of rank 2, alpha 4\.0, and update\.lora",
        ),
        (
            "first",
            {"update.lora": {**LORA, "targets": ["q_proj", "v_proj"]}},
            r"an adapter of down_proj, .*, and update\.lora\.targets says q_proj, v_proj",
        ),
        ("first", {"update.lora": None}, r"update trains full weights: set update\.lora"),
        ("first", {"engine.max_lora_rank": 1}, "rank 2 on an engine with max_lora_rank 1"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_before_anything_is_sampled(
    site, start, settings, why
):
    play(site, "first")
    with pytest.raises(ValueError, match=why):
        play(site, "second", **{"models.start": start, **settings})
    assert rows(site, "select * from rollouts where run = 'second'") == []


def test_a_missing_run_of_the_demo_is_named_with_what_makes_it(store):
    cfg = MethodSettings.model_validate({"models": {"base": "any"}, "engine": {"max_model_len": 9}})
    base = Policy(id="any", weights="any", content_hash="0")
    with pytest.raises(ValueError, match="`make demo-english` makes this run"):
        open_start("spell-smollm2", base, cfg, store)


def test_an_adapter_of_another_base_is_refused(site):
    play(site, "first")
    other = shutil.copytree(site / "model", site / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "another": True}))
    with pytest.raises(ValueError, match=r"an adapter on another model than models\.base"):
        play(
            site,
            "second",
            **{"models.start": "first", "models.base": str(other), "engine.model": str(other)},
        )


def test_a_run_that_trained_nothing_is_no_start(site):
    play(site, "idle", **{"controls.readable": True})  # every answer is right: no contrast
    with pytest.raises(ValueError, match="that run has updated no policy yet"):
        play(site, "second", **{"models.start": "idle"})


def test_a_run_is_compared_with_its_start_and_with_the_base_model(site):
    play(site, "first")
    play(site, "second", **{"models.start": "first"})
    (site / "quiz.toml").write_text(QUIZ)
    [learnt] = rows(site, "select distinct policy from updates where run = 'first'")
    for against, base in (("start", learnt["policy"]), ("base", "model")):
        command = ["evaluate", "second", "--benchmark", str(site / "quiz.toml")]
        told = CliRunner().invoke(main, [*command, "--against", against])
        assert told.exit_code == 0, told.output
        compared = rows(site, "select distinct base from comparisons where run = 'second'")
        assert compared == [{"base": base}]
    # the base model answers in its own run: iteration 0 of this one is of the policy it began with
    asked = rows(
        site, "select distinct run, iteration, policy from evaluations where benchmark = 'quiz'"
    )
    assert {(row["run"], row["iteration"], row["policy"]) for row in asked} == {
        ("second", 0, learnt["policy"]),
        ("second", 1, "second/iter-001/play/step-001/updates"),
        (own_run(str(site / "model")), 0, "model"),
    }
