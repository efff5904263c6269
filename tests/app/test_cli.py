"""The command line refuses what cannot work before anything is started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command import ask, cli, distil, make_tasks, parameters, tune
from flows.app.command.candidates import own_run
from flows.app.service import services
from flows.app.service.deployments import flow_names
from flows.app.service.site import Site
from flows.app.study import STUDIES
from flows.method import Method
from flows.runtime.record import CONFIG, REQUEST, save_request
from flows.runtime.request import Request, default_run
from flows.runtime.start import DEMO
from flows.runtime.store_root import SOURCE
from flows.scope.config import Config
from flows.settings import profile
from flows.spell.config import Config as Spell
from tasks.models.engine import check_files
from tests.support.rows import publish, row
from tests.support.scripted import model_folder
from warehouse import clean
from warehouse.address import check_run_name
from warehouse.store import Store


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "up", lambda site, say: pytest.fail("started"))


def output(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 1
    return result.output


def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "vllm", "prefect", "transformers", "duckdb", "pyarrow", "httpx", "yaml"}
    code = f"import sys, flows.app.command.cli; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )


def test_settings_load_without_the_libraries_of_the_stages() -> None:
    heavy = {"torch", "vllm", "prefect", "transformers", "duckdb", "pyarrow", "numpy", "httpx"}
    code = f"import sys, flows.settings.profile; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )


def test_why_of_a_flow_says_that_it_takes_a_run() -> None:
    assert "scope-iteration is a flow, and `why` takes a run" in output("why", "scope-iteration")


def test_an_unknown_flow_or_profile_is_answered_with_the_choices() -> None:
    said = output("run", "scope")
    assert (
        "no flow 'scope'; there are " in said
        and "prepare-corpus, rzero-iteration, scope-iteration, spell" in said
    )
    said = output("run", "scope-iteration", "--profile", "tiny")
    assert "no profile 'tiny'; there are micro, " in said and ", olmo-3-7b-1gpu, " in said


def test_options_that_contradict_each_other_are_refused() -> None:
    assert "exclude each other" in output("rerun", "mine", "advantages", "--only", "--dependents")
    assert "exclude each other" in output(
        "run", "scope-iteration", "--only", "advantages", "--from", "advantages"
    )


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "."])
def test_a_name_that_no_run_can_have_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(Store(tmp_path).root))
    for command in (
        ("run", "scope-iteration", "--run", name),
        ("verify", name),
        ("clean", name),
        ("status", name),
    ):
        assert f"a run cannot be called {name!r}" in output(*command)


@pytest.mark.parametrize(
    "command",
    ["status", "why", "verify", "clean", "report", "compare", "corpus show", "corpus clusters"],
)
def test_a_run_that_there_is_not_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(Store(tmp_path).root))
    assert "nope" in output(*command.split(), "nope")


def test_a_store_that_there_is_not_is_named_and_not_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "typo"))
    told = f"there is no store at {tmp_path}/typo, which SELFPLAY_STORE names"
    reading = (
        "status",
        "why mine",
        "verify mine",
        "report mine",
        "compare a b",
        "view",
        "export mine",
        "whatif mine",
    )
    more = (
        "sql select",
        "clean mine",
        "rerun mine rewards",
        "fork a b --from 1",
        "corpus show mine",
    )
    for command in (*reading, *more):
        assert told in output(*command.split()), command
    assert not list(tmp_path.iterdir())


def test_the_first_status_of_all_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SELFPLAY_STORE", raising=False)
    monkeypatch.setattr("flows.runtime.store_root.WORKSPACE", tmp_path)
    result = CliRunner().invoke(cli.main, ["status"])
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])
    assert result.output.startswith(
        f"runs in {tmp_path}/data/store: none yet; `selfplay demo` makes some"
    )


def test_a_number_that_prefect_cannot_list_is_refused() -> None:
    assert f"seed: {2**63} is too large" in output(
        "run", "scope-iteration", "--set", f"seed={2**63}"
    )
    said = output("run", "scope-iteration", "--set", f"evaluation.replay=[[1, {2**63}]]")
    assert "evaluation.replay: " in said and "too large" in said


def test_a_wrong_value_is_shown_with_what_is_allowed() -> None:
    said = output(
        "run", "scope-iteration", "--set", "solver.steps=four", "--set", "pool.window=[0.9, 0.1]"
    )
    assert "solver.steps: Input should be a valid integer, not 'four'\n" in said
    assert "pool.window: must be 0 <= low <= high <= 1, not (0.9, 0.1)\n" in said


def test_a_missing_model_is_named_before_anything_starts() -> None:
    said = "model folder /nowhere does not exist"
    assert said in output("run", "scope-iteration", "--set", "models.grader=/nowhere")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", b"{", "cannot be read: "),
        ("config.json", b"[]", "describes no model: it has no model_type"),
        ("config.json", b"{}", "describes no model: it has no model_type"),
        ("model.safetensors", b"", "is damaged: its 0 bytes are not what its header says"),
        ("model.safetensors", b"\xff" * 99, "is damaged: its 99 bytes are not what"),
        ("model.safetensors", None, "bytes are not what its header says"),
    ],
)
def test_a_damaged_model_is_named_before_anything_starts(
    tmp_path: Path, file: str, content: bytes | None, said: str
) -> None:
    """None: the last byte is missing."""
    whole = model_folder(tmp_path / "model")
    check_files(whole)
    path = whole / file
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    told = output("run", "scope-iteration", "--set", f"models.grader={whole}")
    assert said in told.replace("\n", " ") and file in told


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff\xfe", "solver.jinja is no UTF-8"), (b"a\n{% if %}", "solver.jinja, line 2: ")],
)
def test_a_prompt_that_is_no_template_is_named_before_anything_starts(
    tmp_path: Path, content: bytes, said: str
) -> None:
    prompts = tmp_path / "prompts"
    shutil.copytree(SOURCE / "flows" / "scope" / "prompts" / "micro", prompts)
    (prompts / "solver.jinja").write_bytes(content)
    assert said in output("run", "scope-iteration", "--set", f"dialogues.prompts={prompts}")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("engine.max_model_len=9007199254740993", "less than or equal to 67108864"),
        ("engine.model=/nope", "folder /nope does not exist"),
    ],
)
def test_an_engine_that_cannot_be_is_refused_before_anything_starts(
    setting: str, problem: str
) -> None:
    assert problem in output("run", "scope-iteration", "--set", setting)


def test_a_run_made_otherwise_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    asked = Request(flow="scope-iteration", profile="micro", run="mine")
    save_request(Store(tmp_path), asked, profile.load(Config, "micro"))
    assert "run 'mine' was made with seed 0, now 5" in output(
        "run", "scope-iteration", "--run", "mine", "--set", "seed=5"
    )
    assert "run 'mine' is one of scope-iteration" in output(
        "run", "spice-iteration", "--run", "mine"
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"flow": 3}'])
def test_a_damaged_request_is_named_with_the_way_out(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    Store(tmp_path).keep("mine", REQUEST, {})
    (file := tmp_path / "runs" / "mine" / REQUEST).write_text(text)
    for command in (
        ("why", "mine"),
        ("rerun", "mine", "tasks"),
        ("run", "scope-iteration", "--run", "mine"),
    ):
        said = output(*command)
        assert f"{file} " in said and "remove it, then repeat the original `selfplay run`" in said


def test_verify_counts_what_was_cleaned_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    table = publish(Store(tmp_path).run("mine"), "rollouts")
    assert "byte for byte\n" in CliRunner().invoke(cli.main, ["verify", "mine"]).output
    clean.remove(Store(tmp_path), [clean.Removal(table, clean.ROLLOUTS, table.parts)])
    said = CliRunner().invoke(cli.main, ["verify", "mine"]).output
    assert "1 tables, 0.0 MB" in said and "except 1 file(s) that were cleaned away" in said


def test_why_is_asked_from_any_folder_and_names_what_was_never_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path)
    asked = Request(flow="scope-iteration", profile="micro", run="mine")
    save_request(store, asked, profile.load(Config, "micro"))
    publish(store.run("mine"), "policies", row("policies"))
    result = CliRunner().invoke(cli.main, ["why", "mine"])
    assert result.exit_code == 0, result.output
    assert "mine/documents" in result.output and "never made" in result.output


def test_a_misspelt_setting_is_answered_with_the_choices() -> None:
    text = output("run", "scope-iteration", "--set", "pool.windw=[0.1, 0.9]")
    assert "pool.windw" in text
    assert "window" in text.replace("pool.windw", "")


def test_a_setting_without_a_value_shows_how_to_write_one() -> None:
    assert "write KEY=VALUE" in output("run", "scope-iteration", "--set", "solver.steps")


def test_a_missing_corpus_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    said = "there is no corpus 'nowhere': give a file or folder"
    assert f"{said}, hf:owner/name?revision=..., " in output(
        "run", "scope-iteration", "--corpus", "nowhere"
    )
    assert f"{said} or hf:owner/name?rev" in output("corpus", "prepare", "nowhere", "--run", "mine")
    assert "no prepared corpus 'nowhere'" in output("corpus", "search", "nowhere", "rivers")
    clustered = output("run", "spell-iteration", "--profile", "smollm2", "--corpus", "nowhere")
    assert said in clustered and "the name of a finished run of prepare-corpus" in clustered


def test_a_corpus_to_prepare_is_part_of_what_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("some text")
    said = output("corpus", "prepare", str(tmp_path), "--run", "mine", "--set", "clusters.size=0")
    assert "clusters.size" in said and "corpus:" not in said


def test_a_gpu_profile_is_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(services, "NVIDIA", tmp_path / "none")
    monkeypatch.setattr(services, "AMD", tmp_path / "none")
    monkeypatch.setenv("SELFPLAY_PREFECT_HOME", str(tmp_path))
    asked = ("run", "scope-iteration", "--profile", "qwen3-8b-1gpu", "--corpus", str(tmp_path))
    assert "needs a GPU and none was found" in output(*asked)


def test_settings_are_toml_values_or_strings() -> None:
    assert parameters.read_setting("solver.steps=4") == ("solver.steps", 4)
    assert parameters.read_setting("pool.window=[0.1, 0.9]") == ("pool.window", [0.1, 0.9])
    assert parameters.read_setting("judge.quality_gates=false") == ("judge.quality_gates", False)
    assert parameters.read_setting("seed=1\nseed=2") == ("seed", "1\nseed=2")
    assert parameters.read_setting("models.base=Qwen/Qwen3-8B") == ("models.base", "Qwen/Qwen3-8B")


def test_settings_are_json_values_too() -> None:
    group = {"model": "a b", "max_logprobs": None}
    assert parameters.read_setting(f"judge_engine={json.dumps(group)}") == ("judge_engine", group)
    assert parameters.read_setting(r'stop="\ud83d\ude00"') == ("stop", "😀")
    assert parameters.read_setting("given={mine}.jsonl") == ("given", "{mine}.jsonl")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("models.start=None", "models.start=null"),
        ("preflight=False", "preflight=false"),
        ("dialogues.reasoning = True", "dialogues.reasoning=true"),
    ],
)
def test_a_word_of_python_is_refused_with_the_word_to_write(text: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"--set {re.escape(text)}: write {re.escape(right)}$"):
        parameters.read_setting(text)
    assert parameters.read_setting('models.start="None"') == ("models.start", "None")


def test_a_list_of_groups_is_shown_as_it_can_be_set() -> None:
    command = ["settings", "spell-iteration", "baselines", "--profile", "smollm2"]
    shown = CliRunner().invoke(cli.main, command).output.splitlines()[0]
    key, value = parameters.read_setting(shown.replace(" = ", "=", 1))
    assert key == "evaluation.baselines"
    cfg = profile.load(Spell, "smollm2")
    assert profile.load(Spell, "smollm2", {key: value}) == cfg and cfg.evaluation.baselines


def test_a_corpus_is_no_policy_to_serve_or_evaluate(store: Store, tmp_path: Path) -> None:
    request = Request(flow="prepare-corpus", profile="text", run="mine", corpus=str(tmp_path))
    store.keep("mine", REQUEST, request.model_dump(mode="json"))
    store.keep("mine", CONFIG, {"corpus": str(tmp_path)})
    for command in (["serve", "mine"], ["evaluate", "mine", "--benchmark", "gsm8k"]):
        assert "the run mine trains no model" in output(*command)


@pytest.mark.parametrize("key", ["base_model_name_or_path", "r"])
def test_an_adapter_without_base_or_rank_is_refused_in_words(tmp_path: Path, key: str) -> None:
    adapter = {"base_model_name_or_path": "lab/model", "r": 4}
    del adapter[key]
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    told = output("evaluate", str(tmp_path), "--benchmark", "gsm8k")
    assert f"adapter_config.json has no {key}: add it" in told


def test_models_are_named_relative_to_the_callers_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[Any, ...]] = []

    def stop(*arguments: Any) -> None:
        calls.append(arguments)
        raise ValueError("stop")

    monkeypatch.setattr(tune, "tuned_as", stop)
    monkeypatch.setattr(distil, "distilled_as", stop)
    monkeypatch.setattr(make_tasks, "request_with_documents", stop)
    for name in ("mine", "base"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path / "mine")
    output("tune", "r", "--start", "mine")
    output("tune", "r", "--start", "base")
    output("distil", "r", "--teacher", "mine", "--student", "mine")
    output("distil", "r", "--teacher", "lab/model")
    output("tasks", "scope-iteration", "--keep", "1", "--auditor", "mine")
    assert [call[3] for call in calls[:2]] == [here, "base"]
    assert [(call[1], call[3]) for call in calls[2:4]] == [(here, here), ("lab/model", "base")]
    assert calls[4][2]["overrides"] == {"models.auditor": here}


def test_files_of_questions_that_cannot_be_written_are_refused_before_any_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ask, "request_with_documents", lambda *_: pytest.fail("asked"))
    monkeypatch.chdir(tmp_path)
    command = ("ask", "docs", "--with", "lab/model", "--force")
    told = output(*command, "-o", "q.jsonl", "--held-out", str(tmp_path / "q.jsonl"))
    assert "--out, --held-out and --examples need a file each" in told
    assert "there is no folder nodir" in output(*command, "-o", "nodir/q.jsonl")
    assert "there is no folder nodir" in output(*command, "--examples", "nodir/q.jsonl")


def test_questions_about_a_folder_with_a_space_in_its_name_have_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs: list[str] = []

    def stop(_site: Any, _flow: str, parameters: dict[str, Any]) -> None:
        runs.append(parameters["run"])
        raise ValueError("stop")

    monkeypatch.setattr(ask, "request_with_documents", stop)
    (tmp_path / "My docs").mkdir()
    monkeypatch.chdir(tmp_path)
    output("ask", "My docs", "--with", "api:any", "--set", "api.url=https://host/v1")
    assert runs == ["ask-my-docs"]


def test_models_of_one_name_in_different_folders_have_runs_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / name / "my model (v2)" for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    runs = [own_run(str(folder)) for folder in folders]
    assert {run.rpartition("-")[0] for run in runs} == {"evaluate-my-model-v2"}
    assert len(set(runs)) == 2 and check_run_name(runs[0]) == runs[0]
    assert own_run(f"{folders[0]}/../my model (v2)") == runs[0]
    assert own_run("lab/model") != own_run("other/model")


def test_a_flow_run_has_the_models_of_the_one_who_asks(monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", "/large/hub")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    passed = parameters.environment()
    assert passed["HF_HOME"] == "/large/hub" and "HF_TOKEN" not in passed


@pytest.mark.parametrize(
    ("flow", "profile", "corpus", "name"),
    [
        ("scope-iteration", "micro", None, "micro"),
        ("spell-iteration", "micro", None, "spell-micro"),
        ("spice-iteration", "micro", None, "spice-micro"),
        ("rzero-iteration", "micro", None, "rzero-micro"),
        ("prepare-corpus", "text", "here.jsonl", "prepare-corpus-text-here"),
        ("spell-iteration", "smollm2", "../my docs", "spell-smollm2-my-docs"),
    ],
)
def test_a_flow_names_its_run_after_method_profile_and_corpus(
    flow: str, profile: str, corpus: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        Method, "run", lambda self, request, *_: asked.append((self.name, request.run))
    )
    assert (
        parameters.find_method(flow)(profile=profile, corpus=corpus)
        == name
        == default_run(flow, profile, corpus)
    )
    assert asked == [(flow, name)]


@pytest.mark.parametrize("profile", ["smollm2", "documents"])
def test_a_run_on_ones_own_documents_is_not_the_run_that_others_start_from(profile: str) -> None:
    """Of `make demo-english`, whose adapter the profile `documents` starts from."""
    assert default_run("spell-iteration", profile, "my_docs") != DEMO


def test_sql_shows_a_table_and_explains_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(Store(tmp_path).root))
    statement = "select 6 * 7 as answer, 'a [b]' as text"
    result = CliRunner().invoke(cli.main, ["sql", "--format", "table", statement])
    assert result.exit_code == 0
    assert "│ 42     │ a [b] │" in result.output
    assert "nothing_such" in output("sql", "select * from nothing_such")
    assert "no statement" in output("sql", " ; ")


def test_what_documents_say_does_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(Store(tmp_path).root))
    statement = "select chr(27) || '[2J' || chr(13) || chr(8238) || chr(155) as text"
    said = CliRunner().invoke(cli.main, ["sql", "--format", "table", statement])
    assert "␛[2J␍��" in said.output
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(said.output)


def test_a_damaged_table_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    store = Store(tmp_path)
    table = publish(store.run("mine"), "evaluations", row("evaluations"))
    store.keep("mine", "config.json", {})
    (table.folder / table.parts[0]).write_bytes(b"")
    for command in (["compare", "mine"], ["sql", "select * from evaluations"]):
        assert "mine/evaluations/part-00000.parquet" in output(*command)
        assert "`selfplay verify RUN`" in output(*command)


@pytest.mark.parametrize(
    "name", ["", "..", "../other", "a/b", "-x", "_empty", "a~b", "a*", "a b", "runs"]
)
def test_a_run_cannot_lie_outside_its_folder_or_hide_from_the_views(name):
    with pytest.raises(ValueError, match="a run cannot be called"):
        parameters.make_parameters("micro", name)
    with pytest.raises(ValueError, match="a run cannot be called"):
        Request(flow="scope-iteration", profile="micro", run=name)


def test_a_run_may_be_called_in_any_language():
    names = ["qwen2.5-7b", "lauf_ü", "测试", "7"]
    assert [parameters.make_parameters("micro", name)["run"] for name in names] == names
    with pytest.raises(ValueError, match=r"at most 100 letters \(fewer if"):
        parameters.make_parameters("micro", "测" * 34)


def test_help_names_every_flow_and_the_version_is_told() -> None:
    told = CliRunner().invoke(cli.main, ["--help"]).output
    flows = told.partition("\nFlows:\n")[2]
    assert "  azr-iteration, " in flows
    assert all(flow in flows for flow in flow_names(Site.here()))
    version = CliRunner().invoke(cli.main, ["--version"])
    assert version.output == f"selfplay, version {metadata.version('selfplay-flows')}\n"


def test_help_of_study_names_every_study() -> None:
    told = CliRunner().invoke(cli.main, ["study", "--help"], terminal_width=200).output
    words = set(re.findall(r"[\w-]+", told))
    assert {*STUDIES, "phase"} <= words


@pytest.mark.parametrize("command", ["run", "stop", "corpus prepare"])
def test_help_of_a_command_is_no_error(command: str) -> None:
    result = CliRunner().invoke(cli.main, [*command.split(), "-h"])
    assert (result.exit_code, "Error" in result.output) == (0, False)
