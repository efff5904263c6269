"""`selfplay run --corpus PATH` prepares documents first where a profile says how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.app.command import documents
from flows.app.command.parameters import make_parameters
from flows.app.service.site import Site
from flows.settings import profile
from flows.spell.config import Config as Spell
from flows.spice.config import Config as Spice

FLOW = "spell-iteration"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of every preparation; none is made."""
    calls: list[dict[str, Any]] = []

    def run_flow(site: Site, flow: str, parameters: dict[str, Any], here: bool) -> bool:
        assert flow == "prepare-corpus"
        calls.append(parameters)
        return "broken" not in parameters["corpus"]

    monkeypatch.setattr(documents, "run_flow", run_flow)
    monkeypatch.setattr(documents, "show_corpus", lambda name: None)
    monkeypatch.setattr(documents, "check_models", lambda cfg: None)  # SmolLM2 may not be there
    return calls


def ask(corpus: str | None, profile_name: str = "smollm2", **overrides: Any) -> dict[str, Any]:
    parameters = make_parameters(profile_name, "mine", corpus, overrides)
    return documents.with_prepared_documents(Site.here(), FLOW, parameters, in_process=True)


def test_a_folder_becomes_a_corpus_without_the_held_out_passages(
    prepared: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "My docs"
    folder.mkdir()
    asked = ask(str(folder))
    [preparation] = prepared
    assert preparation["corpus"] == str(folder) and preparation["profile"] == "passages"
    assert preparation["overrides"] == {
        "contamination.benchmarks": [{"name": "nq", "path": "data/english/nq.jsonl"}]
    }
    assert asked["corpus"] == preparation["run"] and asked["corpus"].startswith("my-docs-")
    assert asked["run"] == "mine"


def test_documents_are_the_only_corpus_unless_the_command_names_another(
    prepared: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The profile's finance corpus is the paper's, which a user does not have."""
    asked = ask(str(tmp_path), "qwen2.5-7b-1gpu")
    assert profile.load(Spell, asked["profile"]).learns_from == ("corpus", "corpus-finance")
    cfg = profile.load(Spell, asked["profile"], {**asked["overrides"], "corpus": asked["corpus"]})
    assert cfg.learns_from == (asked["corpus"],)
    named = ask(str(tmp_path), "qwen2.5-7b-1gpu", **{"clusters.finance_corpus": "reports"})
    assert named["overrides"] == {"clusters.finance_corpus": "reports"}


def test_the_same_command_finds_the_same_corpus_and_another_path_another(
    prepared: list[dict[str, Any]], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "docs").mkdir(parents=True)
    names = [ask(str(tmp_path / name / "docs"))["corpus"] for name in ("a", "a", "b")]
    assert names[0] == names[1] != names[2]
    assert {name.rpartition("-")[0] for name in names} == {"docs"}


def test_a_prepared_corpus_and_no_corpus_are_left_alone(prepared: list[dict[str, Any]]) -> None:
    assert ask("english")["corpus"] == "english"
    assert "corpus" not in ask(None)
    assert prepared == []


def test_a_preparation_that_fails_ends_the_command(
    prepared: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "broken").mkdir()
    with pytest.raises(SystemExit):
        ask(str(tmp_path / "broken"))


def test_prompts_of_the_built_in_worlds_are_refused_before_any_work(
    prepared: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="know only the built-in worlds"):
        ask(str(tmp_path), "micro")
    assert prepared == []


def test_held_out_questions_of_described_benchmarks_are_dropped_too() -> None:
    cfg = profile.load(Spice, "smollm2")
    assert documents.settings_of_preparation(cfg) == {
        "contamination.registry": ["data/english/nq.toml"],
        "contamination.folder": "data/english",
    }
    cfg = profile.load(Spell, "micro")
    assert documents.settings_of_preparation(cfg) == {"quality.min_score": None}


def test_held_out_files_of_rows_and_registered_benchmarks_are_dropped_too() -> None:
    named = {"evaluation.benchmarks": ["my/own.jsonl", "gsm8k", "ifeval", "data/english/nq.toml"]}
    settings = documents.settings_of_preparation(profile.load(Spice, "smollm2", named))
    assert settings["contamination.benchmarks"] == [{"name": "own", "path": "my/own.jsonl"}]
    # a harness alone reads ifeval
    assert settings["contamination.registry"] == ["gsm8k", "data/english/nq.toml"]


def test_every_file_of_held_out_questions_is_left_out_of_the_corpus() -> None:
    named = {"evaluation.also": ["data/english/tatqa.jsonl"]}
    settings = documents.settings_of_preparation(profile.load(Spell, "smollm2", named))
    names = [benchmark["name"] for benchmark in settings["contamination.benchmarks"]]
    assert names == ["nq", "tatqa"]


def test_documents_without_a_quality_score_are_not_dropped() -> None:
    """The preparation `spell` takes only documents with a score of 1; `passages` needs none."""
    large = documents.settings_of_preparation(profile.load(Spell, "qwen2.5-7b"))
    assert large["quality.min_score"] is None
    small = documents.settings_of_preparation(profile.load(Spell, "smollm2"))
    assert "quality.min_score" not in small


@pytest.mark.parametrize(
    ("corpus", "stem"),
    [
        ("/home/me/My docs", "my-docs"),
        ("hf:owner/Some_Data?revision=1&split=train", "some-data"),
        ("/data/../", "documents"),
        ("/data/" + "long" * 30, "long" * 10),
    ],
)
def test_a_corpus_has_the_name_of_its_folder(corpus: str, stem: str) -> None:
    name = documents.name_of_corpus(corpus, "passages", {})
    assert name.rpartition("-")[0] == stem and len(name.rpartition("-")[2]) == 6
