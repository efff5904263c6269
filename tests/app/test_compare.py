"""Two runs side by side, from stores written row by row."""

import json
import math
import re
import shutil

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command.compare import differing_settings, scores
from tasks.reports.costs import costs
from tests.support.rows import publish, row
from warehouse.clean import removable, remove
from warehouse.schemas import TABLES
from warehouse.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    store = Store(tmp_path)
    for run, group_size, score in (("one", 4, 0.5), ("other", 8, 0.75)):
        measured = row(
            "evaluations", benchmark="exam", metric="score", score=score, standard_error=0.125
        )
        publish(store.run(run).iteration(1), "evaluations", measured)
        settings = {"seed": 1, "solver": {"group_size": group_size}}
        (store.folder(run) / "config.json").write_text(json.dumps(settings))
    return store


def test_settings_that_all_runs_share_are_not_named(store):
    assert differing_settings(store, ["one", "other"]) == [
        {"setting": "solver.group_size", "one": 4, "other": 8}
    ]


def test_scores_stand_in_one_row_an_iteration(store):
    [line] = scores(store, ["one", "other"])
    assert line == {
        "benchmark": "exam",
        "iteration": 1,
        "one": "0.500 ± 0.125",
        "other": "0.750 ± 0.125",
    }


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
        about = {
            "benchmark": "judged",
            "metric": "score",
            "score": 0.5,
            "protocol": json.dumps({"judge": judge}),
        }
        publish(
            store.run(run).iteration(1), "evaluations", row("evaluations", **about), label="judged"
        )
    assert {line["benchmark"] for line in scores(store, ["one", "other"])} == {"exam"}
    result = CliRunner().invoke(cli.main, ["compare", "one", "other"])
    assert "not compared: judged: in other, judge is ['J'], was None" in result.output


def test_the_held_out_tasks_of_two_worlds_are_not_compared(store):
    for run, task in (("one", "a"), ("other", "b")):
        publish(
            store.run(run).iteration(0).phase("benchmark"),
            "tasks",
            row("tasks", task_id=task, text="?"),
        )
    assert scores(store, ["one", "other"]) == []
    result = CliRunner().invoke(cli.main, ["compare", "one", "other"])
    assert "not compared: exam: the 1 held-out tasks of other are others than" in result.output


# ---- what it cost ----


def play(store: Store, run: str) -> None:
    """Two iterations. In each, rollouts of 5 and 7 tokens took 2 seconds and led to an update of
    two steps in 4 seconds. Before the first, 3 tokens of questions took 1 second; scoring each
    iteration sampled 100 more."""
    asked = made(store.run(run).iteration(0).phase("questions"), "rollouts", [3], 1.0)
    for t in (1, 2):
        iteration = store.run(run).iteration(t)
        rollouts = made(iteration.phase("training"), "rollouts", [5, 7], 2.0, *[asked][: 2 - t])
        made(iteration.phase("training"), "updates", [0, 1], 4.0, rollouts)
        made(iteration.phase("evaluation"), "rollouts", [100], 8.0)


def made(place, kind: str, values: list[int], seconds: float, *sources):
    column = {"rollouts": "num_sampled_tokens", "updates": "optimizer_step"}[kind]
    inputs = {
        table.address: {"address": table.address, "content_hash": table.content_hash}
        for table in sources
    }
    recipe = {
        "key": "k",
        "stage": "s",
        "started_at": 0.0,
        "seconds": seconds,
        "counts": {},
        "inputs": inputs,
    }
    with place.store.draft(TABLES[kind]) as draft:
        draft.write([row(kind, **{column: value}) for value in values])
        return place.store.publish(draft, place.address(kind), recipe)


def test_a_run_costs_what_led_to_its_updates(store):
    play(store, "one")
    assert costs(store, "one") == {
        0: {"steps": 0, "tokens": 3, "seconds": 1.0},
        1: {"steps": 2, "tokens": 15, "seconds": 7.0},
        2: {"steps": 4, "tokens": 27, "seconds": 13.0},
    }


def test_a_copy_whose_recipes_name_the_tables_of_its_source_costs_the_same(store):
    """A fork's recipes do."""
    play(store, "one")
    shutil.copytree(store.folder("one"), store.folder("copy"))
    assert costs(store, "copy") == costs(store, "one")


def test_a_run_whose_rollouts_were_cleaned_away_no_longer_knows_its_tokens(store):
    play(store, "one")
    remove(store, removable(store, "one", keep_last=0, keep=(), rollouts=True))
    spent = costs(store, "one")
    assert spent[2]["steps"] == 4 and math.isnan(spent[2]["tokens"])


def test_scores_are_drawn_against_steps_tokens_and_seconds(store):
    play(store, "one")
    result = CliRunner().invoke(cli.main, ["compare", "one", "other"])
    page = (store.root / "reports" / "compare-one-other.html").read_text()
    assert all(
        label in page for label in ("optimizer steps", "sampled tokens", "seconds of stages")
    )
    assert "one 0.500 after 2 steps" in page
    assert re.search(r"one .*4 .*27 .*13", result.output)
