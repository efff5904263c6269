"""Cards and `compare` say what rows were made with, whatever was asked for last."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command.compare import made_differently
from flows.runtime.request import RerunRequest
from flows.rzero.flow import rzero_iteration
from tasks.report import report
from tests.app.test_diff import PROMPTS, play
from tests.flows.rzero.test_played import SETTINGS
from tests.support.scripted_play import any_text_model
from warehouse.fork import FORK
from warehouse.provenance import made_from, stale
from warehouse.query import query
from warehouse.schemas import UPDATES
from warehouse.stopped import stopped
from warehouse.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the run `one`, one stage of which was rerun with other settings."""
    folder = tmp_path_factory.mktemp("provenance")
    any_text_model(folder / "model")
    play(folder, "one")
    play(folder, "forced")
    changed = {**SETTINGS, "models.base": str(folder / "model"), "solver.update.learning_rate": 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        rerun = RerunRequest(stage="labels", only=True)
        rzero_iteration("micro", "forced", changed, rerun=rerun, force=True)
    return folder


@pytest.fixture
def told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SELFPLAY_STORE", str(folder / "store"))
    monkeypatch.setattr("flows.app.command.tables.PIPE_WIDTH", 4000)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli.main, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def line_of(text: str, *words: str) -> str:
    (line,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return line


def test_a_model_card_has_the_value_of_training_and_calls_the_new_one_stale(told, tmp_path) -> None:
    told("export", "forced", "--policy", "solver", "-o", str(tmp_path / "out"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "settings.learning\\_rate 0.00015" in line_of(card, "| solver/updates |")
    assert '"learning_rate": 0.00015' in card
    stale = card.partition("## Stale tables")[2].partition("## ")[0]
    assert "made with settings.learning\\_rate 0.00015, now 0.5" in stale
    assert "learning\\_rate 0.5" not in card.replace(stale, "")


def test_a_dataset_card_names_what_is_stale_and_one_without_says_so(told, tmp_path) -> None:
    told("export", "forced", "-o", str(tmp_path / "forced"))
    card = (tmp_path / "forced" / "README.md").read_text()
    assert "made with settings.learning\\_rate 0.00015, now 0.5 | 2 |" in card
    told("export", "one", "-o", str(tmp_path / "one"))
    assert "None: all fit the settings" in (tmp_path / "one" / "README.md").read_text()


def test_compare_shows_what_is_stale_and_no_setting_that_made_nothing(told, folder) -> None:
    rows = made_differently(Store(folder / "store"), ["one", "forced"])
    assert "learning_rate" not in str(rows)
    output = told("compare", "one", "forced")
    assert "made with settings.learning_rate 0.00015, now 0.5" in output


def test_compare_shows_edited_prompts_and_edited_code(told, folder, monkeypatch) -> None:
    shutil.copytree(PROMPTS, folder / "prompts")
    with open(folder / "prompts" / "solver.jinja", "a", encoding="utf-8") as file:
        file.write("\nTake care.\n")
    monkeypatch.setattr("flows.rzero.flow.challenger_rewards", edited_rewards)
    play(folder, "edited", **{"dialogues.prompts": str(folder / "prompts")})
    rows = made_differently(Store(folder / "store"), ["one", "edited"])
    by_stage = {(row["stage"], row["what"]): row for row in rows}
    prompt = by_stage["challenger/prompts.solver", "prompt"]
    assert prompt["name"] == "solver" and prompt["one"] != prompt["edited"]
    code = by_stage["challenger/rewards", "code"]
    assert " more" in code["name"] and code["one"] != code["edited"]
    assert ("solver/rewards", "code") not in by_stage


def edited_rewards(tasks: list[Any], labels: list[Any], novelties: list[Any], *, weight: float):
    from flows.rzero.rewards import challenger_rewards

    for row in challenger_rewards(tasks, labels, novelties, weight=weight):
        yield {**row, "components": {}}


def test_why_adds_up_what_a_change_costs_downstream_too(told, folder) -> None:
    """The reward's weight makes rewards and their parts stale. From these come the challenger's
    update, and all that its policy asked and the solver then learned: two updates more."""
    output = told("why", "one", "--set", "challenger.repetition_weight=0.5")
    assert "2 of 57 stages would be rebuilt" in output
    sampled = query(
        folder / "store",
        "select sum(num_sampled_tokens)::int as tokens from rollouts"
        " where run = 'one' and phase in ('pool', 'solver')",
    )[0]["tokens"]
    updates = list(Store(folder / "store").tables("one", UPDATES))
    trained = sum(table.recipe["tokens"] for table in updates)
    total = [cell.strip() for cell in line_of(output, "│ all ").split("│")[1:-1]]
    assert total[1:5] == ["2", "42", "3", f"{sampled + trained:,}"]
    # neither the questions of the challenger's step nor its solver's answers
    assert "challenger/rollouts" not in output


def test_a_table_made_from_rows_that_were_rebuilt_since_is_stale(folder, told, tmp_path) -> None:
    """Without a dry run: by the recipes alone."""
    store = Store(folder / "store")
    copy_with_other_labels(store, "rebuilt")
    store.keep("rebuilt", FORK, {"run": "one"})
    found = {one.address: one.why for one in stale(store, list(store.tables("rebuilt")), {})}
    step = "rebuilt/iter-001/challenger/step-001"
    assert found[f"{step}/rewards"].endswith("/labels was rebuilt since, with other rows")
    assert found[f"{step}/updates"] == "made from tables that are stale"
    # the solver's rollouts come from the base model, not from the challenger's update
    assert f"{step}/rollouts.solver" not in found


def test_what_another_run_made_is_not_taken_for_a_table_at_the_same_place(folder: Path) -> None:
    """As in a run that starts from another run's policy: its recipes name that run."""
    store = Store(folder / "store")
    copy_with_other_labels(store, "started")
    tables = list(store.tables("started"))
    assert stale(store, tables, {}) == []
    [last] = [table for table in tables if table.address.endswith("challenger/step-001/updates")]
    assert made_from(tables, [last.address]) == []


def test_a_rerun_of_one_stage_that_ends_there_did_not_fail(folder: Path) -> None:
    assert stopped(Store(folder / "store"), "forced") is None


def copy_with_other_labels(store: Store, run: str) -> None:
    shutil.copytree(store.folder("one"), store.folder(run))
    table = store.get(f"{run}/iter-001/challenger/step-001/labels")
    store.amend(table.address, {**table.recipe, "content_hash": "0" * 32})


def test_a_report_names_what_no_longer_fits_its_rows(folder: Path) -> None:
    store = Store(folder / "store")
    copy_with_other_labels(store, "again")
    store.keep("again", FORK, {"run": "one"})
    page = report(store.run("again"), 1).read_text("utf-8")
    assert "/challenger/step-001/labels was rebuilt since, with other rows" in page
    assert "Some rows were made" not in report(store.run("one"), 1).read_text("utf-8")
