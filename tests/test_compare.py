"""Two runs side by side, from stores written row by row."""

import json

import pytest
from click.testing import CliRunner

from flows.command import cli
from flows.command.compare import differing_settings, scores
from tests.support.rows import publish, row
from warehouse.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    store = Store(tmp_path)
    for run, group_size, score in (("one", 4, 0.5), ("other", 8, 0.75)):
        measured = row("evaluations", benchmark="exam", metric="score", score=score, standard_error=0.125)
        publish(store.run(run).iteration(1), "evaluations", measured)
        settings = {"seed": 1, "solver": {"group_size": group_size}}
        (store.folder(run) / "config.json").write_text(json.dumps(settings))
    return store


def test_settings_that_all_runs_share_are_not_named(store):
    assert differing_settings(store, ["one", "other"]) == [{"setting": "solver.group_size", "one": 4, "other": 8}]


def test_scores_stand_in_one_row_an_iteration(store):
    [line] = scores(store, ["one", "other"])
    assert line == {"benchmark": "exam", "iteration": 1, "one": "0.500 ± 0.125", "other": "0.750 ± 0.125"}


def test_the_command_prints_both_and_writes_a_page(store):
    result = CliRunner().invoke(cli.main, ["compare", "one", "other"])
    assert result.exit_code == 0
    assert "solver.group_size" in result.output
    assert "<svg" in (store.root / "reports" / "compare-one-other.html").read_text()


def test_an_unknown_run_is_an_error(store):
    result = CliRunner().invoke(cli.main, ["compare", "one", "nowhere"])
    assert result.exit_code == 1
    assert "there is no run 'nowhere'" in result.output


def test_scores_that_were_not_come_by_in_the_same_way_are_not_compared(store):
    for run, judge in (("one", None), ("other", ["J"])):
        about = {"benchmark": "judged", "metric": "score", "score": 0.5, "protocol": json.dumps({"judge": judge})}
        publish(store.run(run).iteration(1), "evaluations", row("evaluations", **about), label="judged")
    assert {line["benchmark"] for line in scores(store, ["one", "other"])} == {"exam"}
    result = CliRunner().invoke(cli.main, ["compare", "one", "other"])
    assert "not compared: judged: in other, judge is ['J'], was None" in result.output
