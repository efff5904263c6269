"""`selfplay diff`: where two scripted runs begin to differ, and why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.rzero.flow import rzero_iteration
from tests.flows.rzero.test_played import (
    CANDIDATES,
    EASY,
    SETTINGS,
    SILENT,
    TRAINING,
    speaker,
)
from tests.support.scripted_play import Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store

PROMPTS = Path(__file__).resolve().parents[2] / "flows" / "rzero" / "prompts" / "english"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the run `one`, and its model."""
    folder = tmp_path_factory.mktemp("diff")
    any_text_model(folder / "model")
    play(folder, "one")
    return folder


def play(folder: Path, run: str, *questions: str | None, **changed: Any) -> None:
    """One iteration of R-Zero over a script; by default over the same one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(speaker(*(questions or (*TRAINING, *CANDIDATES)))), patch)
        settings = {**SETTINGS, "models.base": str(folder / "model"), **changed}
        rzero_iteration("micro", run, settings)


@pytest.fixture
def diff(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SELFPLAY_STORE", str(folder / "store"))

    def told(one: str, other: str) -> str:
        result = CliRunner().invoke(cli.main, ["diff", one, other])
        assert result.exit_code == 0, result.output
        return result.output

    return told


def made_before(store: Store, run: str, place: str) -> int:
    began = store.get(f"{run}/{place}").recipe["started_at"]
    return sum(table.recipe["started_at"] < began for table in store.tables(run))


def cells(output: str, word: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if word in line and "│" in line]
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_a_changed_setting_is_named_at_the_first_table_made_with_it(folder, diff) -> None:
    play(folder, "wider", **{"challenger.repetition_weight": 0.5})
    output = diff("one", "wider")
    place = "iter-001/challenger/step-001/rewards"
    num_equal = made_before(Store(folder / "store"), "one", place)
    assert f"equal: the first {num_equal} tables that one made; then {place} differs" in output
    assert cells(output, "weight") == ["setting", "arguments.weight", "1.0", "0.5"]


def test_an_edited_prompt_is_named_with_both_versions(folder, diff) -> None:
    shutil.copytree(PROMPTS, folder / "prompts")
    with open(folder / "prompts" / "solver.jinja", "a", encoding="utf-8") as file:
        file.write("\nTake care.\n")
    play(folder, "edited", **{"dialogues.prompts": str(folder / "prompts")})
    output = diff("one", "edited")
    assert "then iter-001/challenger/step-001/prompts.solver differs" in output
    versions = query(
        folder / "store",
        "select distinct run, template_version from prompts"
        " where template = 'solver' and phase = 'challenger' and run in ('one', 'edited')"
        " order by run desc",
    )
    assert cells(output, "prompt") == [
        "prompt",
        "solver",
        *(row["template_version"] for row in versions),
    ]


def test_a_reply_that_was_sampled_otherwise_is_shown_as_the_first_row_that_differs(
    folder, diff
) -> None:
    """The script asks its third question otherwise; prompts, settings and code are the same."""
    play(folder, "sampled", *TRAINING[:2], SILENT, *TRAINING[3:], *CANDIDATES)
    output = diff("one", "sampled")
    assert "then iter-001/challenger/step-001/rollouts.challenger differs" in output
    assert "its recipe is the same; its first row that differs is row 2" in output
    assert EASY in output and SILENT in output


def test_runs_that_only_their_names_tell_apart_are_the_same(folder, diff) -> None:
    store = Store(folder / "store")
    shutil.copytree(store.folder("one"), store.folder("copy"))
    assert diff("one", "copy") == (
        f"one and copy are the same: all {len(list(store.tables('one')))} tables are equal\n"
    )


def test_a_table_that_only_one_run_has_is_named(folder, diff) -> None:
    store = Store(folder / "store")
    shutil.copytree(store.folder("one"), store.folder("short"))
    last = max(store.tables("short"), key=lambda table: table.recipe["started_at"])
    shutil.rmtree(last.folder)
    place = last.address.removeprefix("short/")
    assert cells(diff("one", "short"), "table ") == ["table", place, "made", "(none)"]
    assert cells(diff("short", "one"), "table ") == ["table", place, "(none)", "made"]


def test_a_run_that_does_not_exist_is_refused(folder, diff) -> None:
    result = CliRunner().invoke(cli.main, ["diff", "one", "nowhere"])
    assert result.exit_code == 1 and "there is no run 'nowhere'" in result.output
