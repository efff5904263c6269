"""The command line refuses what cannot work before anything is started."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows import cli, launch, services
from flows.site import Site
from flows.workbench import Request


def output(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 1
    return result.output


def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "vllm", "prefect", "transformers", "duckdb", "pyarrow", "httpx", "yaml"}
    code = f"import sys, flows.cli; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_an_unknown_flow_or_profile_is_answered_with_the_choices() -> None:
    assert "no flow 'scope'; there is prepare-corpus, scope-iteration" in output("run", "scope")
    assert "no profile 'tiny'; there are micro, micro-hackable, qwen2.5-7b-6gpu" in output(
        "run", "scope-iteration", "--profile", "tiny"
    )


def test_a_misspelt_setting_is_answered_with_the_choices() -> None:
    text = output("run", "scope-iteration", "--set", "pool.windw=[0.1, 0.9]")
    assert "pool.windw" in text
    assert "window" in text.replace("pool.windw", "")


def test_a_setting_without_a_value_shows_how_to_write_one() -> None:
    assert "write KEY=VALUE" in output("run", "scope-iteration", "--set", "solver.steps")


def test_a_missing_corpus_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    said = "corpus nowhere is no path and no prepared corpus"
    assert said in output("run", "scope-iteration", "--corpus", "nowhere")
    assert said in output("corpus", "prepare", "nowhere", "--run", "mine")
    assert said in output("corpus", "search", "nowhere", "rivers")


def test_a_corpus_to_prepare_is_part_of_what_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(services, "up", lambda site, say: pytest.fail("started"))
    (tmp_path / "a.txt").write_text("some text")
    said = output("corpus", "prepare", str(tmp_path), "--run", "mine", "--set", "clusters.size=0")
    assert "clusters.size" in said and "corpus:" not in said


def test_a_gpu_profile_is_refused_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(services, "NVIDIA", tmp_path / "none")
    monkeypatch.setattr(services, "AMD", tmp_path / "none")
    monkeypatch.setenv("SELFPLAY_PREFECT_HOME", str(tmp_path))
    assert "needs a GPU and none was found" in output("run", "scope-iteration", "--profile", "qwen3-8b-1gpu")


def test_settings_are_toml_values_or_strings() -> None:
    assert launch.read_setting("solver.steps=4") == ("solver.steps", 4)
    assert launch.read_setting("pool.window=[0.1, 0.9]") == ("pool.window", [0.1, 0.9])
    assert launch.read_setting("judge.quality_gates=false") == ("judge.quality_gates", False)
    assert launch.read_setting("models.base=Qwen/Qwen3-8B") == ("models.base", "Qwen/Qwen3-8B")


def test_every_profile_of_every_flow_is_deployed_under_its_name() -> None:
    declared = services.declared(Site())
    for entrypoint in {deployment["entrypoint"] for deployment in declared}:
        config = importlib.import_module(entrypoint.rsplit("/", 1)[0].replace("/", ".") + ".config")
        names = [deployment["name"] for deployment in declared if deployment["entrypoint"] == entrypoint]
        assert sorted(names) == config.profile_names()
        assert all(config.load_profile(name, {"corpus": "here"}) for name in names)
    assert all(deployment["parameters"] == {"profile": deployment["name"]} for deployment in declared)


@pytest.mark.parametrize(
    ("flow", "profile", "name"),
    [
        ("scope-iteration", "micro", "micro"),
        ("spell-iteration", "micro", "spell-micro"),
        ("spice-iteration", "micro", "spice-micro"),
        ("prepare-corpus", "text", "prepare-corpus-text"),
    ],
)
def test_a_flow_names_its_run_after_method_and_profile(
    flow: str, profile: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = launch.find_deployment(flow, profile)
    module, asked = launch.flow_module(deployment), []

    @contextlib.contextmanager
    def opened(request: Request, *_: object) -> Iterator[None]:
        asked.append(request.run)
        yield

    for place in ("open_run", "open_place", "self_play", "prepare"):
        if hasattr(module, place):
            monkeypatch.setattr(module, place, opened if place.startswith("open") else lambda *_: None)
    getattr(module, deployment["entrypoint"].split(":")[1]).fn(profile=profile, corpus="here")
    assert asked == [name] == [launch.default_run(flow, profile)]


def test_sql_shows_a_table_and_explains_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    result = CliRunner().invoke(cli.main, ["sql", "select 6 * 7 as answer, 'a [b]' as text"])
    assert result.exit_code == 0
    assert "42" in result.output
    assert "a [b]" in result.output
    assert "nothing_such" in output("sql", "select * from nothing_such")


@pytest.mark.parametrize("name", ["", "..", "../other", "a/b", "-x", "_empty", "a~b", "a*", "a b", "runs"])
def test_a_run_cannot_lie_outside_its_folder_or_hide_from_the_views(name):
    with pytest.raises(ValueError, match="a run cannot be called"):
        launch.make_parameters("micro", name)
    with pytest.raises(ValueError, match="a run cannot be called"):
        Request(flow="scope-iteration", profile="micro", run=name)


def test_a_run_may_be_called_in_any_language():
    names = ["qwen2.5-7b", "lauf_ü", "测试", "7"]
    assert [launch.make_parameters("micro", name)["run"] for name in names] == names
