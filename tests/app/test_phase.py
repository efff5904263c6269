"""The phase diagram, from runs written row by row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flows.app import claims
from flows.app.command.study import read_part
from flows.app.phase import play
from flows.app.phase.grid import CLEAN, OWN, Cell, Grid
from flows.app.phase.results import propose
from flows.settings import profile
from flows.spice.config import Config
from tests.support.rows import publish, row
from warehouse.store import Store

GRID = replace(Grid.load(), methods={"spice": {"profile": "micro", "settings": {}}}, seeds=2)
MISTAKE = Cell("spice", "mistake", 0.4)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(claims, "BENCH", tmp_path / "bench")
    return Store(tmp_path / "store")


def write(store, cell, seed, scores, flat_group=0.1):
    """A run with held-out scores of 1,000 answers by iteration, a fifth of its verdicts wrong."""
    for iteration, score in enumerate(scores):
        error = (score * (1 - score) / 1000) ** 0.5
        rows = [
            row("evaluations", benchmark="micro", metric="score", score=score, standard_error=error)
        ]
        place = store.run(cell.run_name(seed)).iteration(iteration)
        publish(place, "evaluations", *rows)
        if iteration:
            measured = {"verdict_error": 0.2, "flat_group": flat_group * iteration}
            rows = [
                row("evaluations", benchmark="batch monitor", metric=metric, score=value)
                for metric, value in measured.items()
            ]
            publish(place.phase("training").step(1), "evaluations", *rows, label="batch")


def reported(store, tmp_path, runs):
    play.report(GRID, runs)
    lines = [json.loads(line) for line in (tmp_path / "bench" / "phase.jsonl").open()]
    return [r for r in lines if "limit" not in r], [r for r in lines if "limit" in r]


def test_a_cell_has_the_gain_of_its_seeds_and_says_which_collapsed(store, tmp_path):
    """0.5 to 0.4: four standard errors of a difference, 0.022, below the base model."""
    write(store, MISTAKE, 0, (0.5, 0.6, 0.4))
    write(store, MISTAKE, 1, (0.5, 0.6, 0.56))
    runs = {MISTAKE.run_name(seed): (MISTAKE, claims.End()) for seed in (0, 1)}
    [cell], _ = reported(store, tmp_path, runs)
    assert (cell["errors"], cell["share"], cell["seeds"]) == ("mistake", 0.4, 2)
    assert cell["last"] - cell["before"] == pytest.approx(-0.02)
    assert (cell["collapsed"], cell["in iteration"]) == (1, 2)
    assert cell["verdict error"] == pytest.approx(0.2)
    assert (tmp_path / "bench" / "phase.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_stopped_by_itself_has_collapsed_in_the_iteration_that_it_did_not_end(
    store, tmp_path
):
    write(store, MISTAKE, 0, (0.5, 0.55))
    runs = {MISTAKE.run_name(0): (MISTAKE, claims.End("no rollout could be rewarded"))}
    [cell], _ = reported(store, tmp_path, runs)
    assert (cell["collapsed"], cell["in iteration"]) == (1, 2)


def test_a_limit_is_proposed_from_clean_runs_and_its_delay_counted_from_the_collapse(
    store, tmp_path
):
    """Clean runs reach shares of flat groups of 0.2 and 0.3. A limit of 0.3 raises no alarm in
    them, and raises one in iteration 1 of the run that collapses in iteration 2: a delay of -1."""
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7), flat_group=0.1)
    write(store, clean, 1, (0.5, 0.6, 0.7), flat_group=0.15)
    write(store, MISTAKE, 0, (0.5, 0.5, 0.3), flat_group=0.4)
    runs = {clean.run_name(0): (clean, claims.End()), clean.run_name(1): (clean, claims.End())}
    runs |= {MISTAKE.run_name(0): (MISTAKE, claims.End())}
    _, monitors = reported(store, tmp_path, runs)
    [flat] = [r for r in monitors if r["limit"] == "max_flat_group"]
    assert flat["now"] == 0.95
    assert flat["now: warned"] == "0 of 1"
    assert flat["proposed"] == pytest.approx(0.3)
    assert flat["proposed: false alarms"] == "0 of 2"
    assert (flat["proposed: warned"], flat["proposed: delay"]) == ("1 of 1", -1)


def test_one_of_twenty_clean_runs_may_raise_a_false_alarm():
    assert propose("max_x", [0.1 * n for n in range(19)], GRID) == pytest.approx(1.8)
    assert propose("max_x", [0.1 * n for n in range(20)], GRID) == pytest.approx(1.8)
    assert propose("min_x", [0.1 * n for n in range(20)], GRID) == pytest.approx(0.1)
    assert propose("max_x", [], GRID) is None


def test_every_cell_of_the_grid_is_a_configuration_without_alarms():
    grid = Grid.load()
    names = [run.name for run in play.planned(grid)]
    cells_of_method = 2 + len(grid.shapes) * len(grid.shares)
    assert len(set(names)) == len(names) == len(grid.methods) * cells_of_method * grid.seeds
    request = grid.request(MISTAKE, seed=3)
    cfg = profile.load(Config, request.profile, request.settings)
    assert (cfg.errors.shape, cfg.errors.share, cfg.seed) == ("mistake", 0.4, 3)
    assert not any(dict(cfg.monitor).values())


def test_clean_runs_are_trained_by_the_truth_and_own_ones_by_the_methods_verdicts():
    assert Cell("spice", CLEAN, 0.0).errors == {"errors.shape": "independent", "errors.share": 0.0}
    assert Cell("spice", OWN, 0.0).errors == {"errors.shape": "none"}


def test_parts_of_the_grid_are_disjoint_and_complete():
    grid = Grid.load()
    parts = [[run.name for run in play.planned(grid, (number, 3))] for number in (1, 2, 3)]
    every = sorted(run.name for run in play.planned(grid))
    assert sorted(name for part in parts for name in part) == every


def test_a_part_that_does_not_exist_is_refused():
    for wrong in ("3/2", "0/2", "1", "a/b"):
        with pytest.raises(ValueError, match="--part"):
            read_part(wrong)
