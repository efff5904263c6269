"""The phase diagram, from runs written row by row."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from matplotlib.axes import Axes

from flows.app import claims
from flows.app.command.study import read_part
from flows.app.phase import play
from flows.app.phase.figure import draw_diagram
from flows.app.phase.grid import CLEAN, OWN, Cell, Grid
from flows.app.phase.kept_findings import load
from flows.app.phase.results import Results, first_alarm, propose
from flows.settings import profile
from flows.spice.config import Config
from tests.support.rows import publish, row
from warehouse.query import snapshot
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
        measured = {"score": score, "standard_error": error, "n": 1000}
        rows = [row("evaluations", benchmark="micro", metric="score", **measured)]
        place = store.run(cell.run_name(seed)).iteration(iteration)
        publish(place, "evaluations", *rows)
        if iteration:
            measured = {"verdict_error": 0.2, "flat_group": flat_group * iteration}
            rows = [
                row("evaluations", benchmark="batch monitor", metric=metric, score=value, n=100)
                for metric, value in measured.items()
            ]
            publish(place.phase("training").step(1), "evaluations", *rows, label="batch")


def results_of(store, runs):
    """The rows of two tables: cells and monitors."""
    cell_of = {name: cell for name, (cell, _) in runs.items()}
    stopped = frozenset(name for name, (_, end) in runs.items() if end.alarm)
    with snapshot(store.root, ["evaluations"], list(runs)) as ask:
        results = Results(GRID, cell_of, stopped, ask)
        return results.cells(), results.monitors()


def reported_findings(tmp_path, runs):
    """The rows of the table of findings in a report."""
    play.report(GRID, runs)
    lines = [json.loads(line) for line in (tmp_path / "bench" / "phase.jsonl").open()]
    return [line for line in lines if "finding" in line]


def test_a_report_has_a_table_and_a_figure(store, tmp_path):
    write(store, MISTAKE, 0, (0.5, 0.6))
    play.report(GRID, {MISTAKE.run_name(0): (MISTAKE, claims.End())})
    first = json.loads((tmp_path / "bench" / "phase.jsonl").open().readline())
    assert (first["method"], first["errors"], first["seeds"]) == ("spice", "mistake", 1)
    assert (tmp_path / "bench" / "phase.png").read_bytes().startswith(b"\x89PNG")


def test_a_cell_has_the_gain_of_its_seeds_and_says_which_collapsed(store):
    """0.5 to 0.4: four standard errors of a difference, 0.022, below the base model."""
    write(store, MISTAKE, 0, (0.5, 0.6, 0.4))
    write(store, MISTAKE, 1, (0.5, 0.6, 0.56))
    runs = {MISTAKE.run_name(seed): (MISTAKE, claims.End()) for seed in (0, 1)}
    [cell], _ = results_of(store, runs)
    assert (cell["errors"], cell["share"], cell["seeds"]) == ("mistake", 0.4, 2)
    assert cell["last"] - cell["before"] == pytest.approx(-0.02)
    assert (cell["collapsed"], cell["in iteration"]) == (1, 2)
    assert cell["verdict error"] == pytest.approx(0.2)


@pytest.mark.parametrize(("last", "collapsed"), [(0.456, 0), (0.454, 1)])
def test_a_score_has_collapsed_two_standard_errors_of_the_difference_below_the_base_model(
    store, last, collapsed
):
    """Both standard errors are near 0.0158, that of the difference 0.0223: the bound is 0.4554."""
    write(store, MISTAKE, 0, (0.5, last))
    [cell], _ = results_of(store, {MISTAKE.run_name(0): (MISTAKE, claims.End())})
    assert cell["collapsed"] == collapsed


def test_only_what_monitors_measured_in_training_is_an_alarm(store):
    """Flat groups of the base model, and a benchmark's measure of the same name, are beyond the
    limit."""
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7))
    flat = row("evaluations", benchmark="batch monitor", metric="flat_group", score=1.0, n=100)
    publish(store.run(clean.run_name(0)).iteration(0).phase("monitor"), "evaluations", flat)
    other = row("evaluations", benchmark="micro", metric="flat_group", score=1.0, n=100)
    publish(store.run(clean.run_name(0)).iteration(1).phase("audit"), "evaluations", other)
    _, monitors = results_of(store, {clean.run_name(0): (clean, claims.End())})
    [limit] = [row for row in monitors if row["limit"] == "max_flat_group"]
    assert limit["now: false alarms"] == "0 of 1"
    assert limit["proposed"] == pytest.approx(0.2)


def test_every_verdict_of_a_run_counts_the_same_however_many_a_step_has(store):
    """20 wrong of 100 in the step that `write` gives it, and 1 of 300 more; of wrong answers pass
    10 of 20, and 1 of 60 more."""
    write(store, MISTAKE, 0, (0.5, 0.6))
    training = store.run(MISTAKE.run_name(0)).iteration(1).phase("training")
    for step, metric, score, n in (
        (2, "verdict_error", 1 / 300, 300),
        (2, "wrong_passes", 0.5, 20),
        (3, "wrong_passes", 1 / 60, 60),
    ):
        error = row("evaluations", benchmark="b monitor", metric=metric, score=score, n=n)
        publish(training.step(step), "evaluations", error, label=metric)
    [cell], _ = results_of(store, {MISTAKE.run_name(0): (MISTAKE, claims.End())})
    assert cell["verdict error"] == pytest.approx(21 / 400)
    assert cell["wrong answers that pass"] == pytest.approx(11 / 80)


def test_the_gain_is_drawn_over_the_share_of_verdicts_that_were_wrong(tmp_path, monkeypatch):
    """Whatever the share is that the shape of error was applied to; unmeasured cells are left
    out."""
    cells = [
        {"errors": CLEAN, "share": 0.0, "verdict error": 0.0, "before": 0.5, "last": 0.8},
        {"errors": "mistake", "share": 0.4, "verdict error": 0.25, "before": 0.5, "last": 0.6},
        {"errors": "mistake", "share": 0.2, "verdict error": 0.1, "before": 0.5, "last": 0.7},
        {"errors": "mistake", "share": 0.7, "verdict error": None, "before": 0.5, "last": 0.6},
    ]
    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda axes, x, y, **style: drawn.append((x, y)) or plot(axes, x, y, **style)
    )
    draw_diagram([{"method": "spice", **cell} for cell in cells], tmp_path / "phase.png")
    [(errors, gains)] = drawn
    assert errors == [0.0, 0.1, 0.25]
    assert gains == pytest.approx([0.3, 0.2, 0.1])


def test_a_run_that_only_the_kept_file_had_is_of_the_store_once_it_was_played_again(
    store, monkeypatch
):
    """Else its scores would stay those of the first time."""
    again = replace(GRID, shapes=[], seeds=1)
    name = Cell("spice", CLEAN, 0.0).run_name(0)
    monkeypatch.setattr(claims, "next_stage", lambda asked: (None, ""))
    monkeypatch.setattr(claims, "play", lambda asked, pool: None)
    reports = []
    monkeypatch.setattr(play, "report", lambda grid, runs: reports.append(dict(runs)))
    kept = {name: (Cell("spice", CLEAN, 0.0), claims.End(in_store=False))}
    finished = play.finished
    monkeypatch.setattr(
        play,
        "finished",
        lambda grid, known=None: finished(grid, kept if known is None else known),
    )
    play.play_grid(again, again=True)
    assert [runs[name][1].in_store for runs in reports[:2]] == [False, True]


def test_a_run_that_stopped_by_itself_has_collapsed_in_the_iteration_that_it_did_not_end(
    store,
):
    write(store, MISTAKE, 0, (0.5, 0.55))
    runs = {MISTAKE.run_name(0): (MISTAKE, claims.End("no rollout could be rewarded"))}
    [cell], _ = results_of(store, runs)
    assert (cell["collapsed"], cell["in iteration"]) == (1, 2)


def test_a_limit_is_proposed_from_healthy_runs_and_its_delay_counted_from_the_collapse(
    store,
):
    """Clean runs reach shares of flat groups of 0.2 and 0.3. A limit of 0.3 raises no alarm in
    them, and raises one in iteration 1 of the run that collapses in iteration 2: a delay of -1."""
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7), flat_group=0.1)
    write(store, clean, 1, (0.5, 0.6, 0.7), flat_group=0.15)
    write(store, MISTAKE, 0, (0.5, 0.5, 0.3), flat_group=0.4)
    runs = {clean.run_name(0): (clean, claims.End()), clean.run_name(1): (clean, claims.End())}
    runs |= {MISTAKE.run_name(0): (MISTAKE, claims.End())}
    _, monitors = results_of(store, runs)
    [flat] = [r for r in monitors if r["limit"] == "max_flat_group"]
    assert flat["now"] == 0.95
    assert flat["now: failures warned of"] == "0 of 1"
    assert flat["proposed"] == pytest.approx(0.3)
    assert flat["proposed: false alarms"] == "0 of 2"
    assert (flat["proposed: failures warned of"], flat["proposed: delay"]) == ("1 of 1", -1)


def test_a_run_is_healthy_if_it_gains_half_of_what_the_clean_runs_do(store):
    """A limit is also one of runs with errors that learn, here 0.16 instead of 0.04; of a run that
    gains too little it may warn, and there is no delay, because it did not collapse."""
    clean = Cell("spice", CLEAN, 0.0)
    mild = Cell("spice", "independent", 0.1)
    write(store, clean, 0, (0.5, 0.6, 0.7), flat_group=0.02)
    write(store, mild, 0, (0.5, 0.55, 0.6), flat_group=0.08)
    write(store, MISTAKE, 0, (0.5, 0.55, 0.59), flat_group=0.1)
    runs = {cell.run_name(0): (cell, claims.End()) for cell in (clean, mild, MISTAKE)}
    cells, monitors = results_of(store, runs)
    assert [(cell["failed"], cell["collapsed"]) for cell in cells] == [(0, 0), (0, 0), (1, 0)]
    [flat] = [r for r in monitors if r["limit"] == "max_flat_group"]
    assert flat["proposed"] == pytest.approx(0.16)
    assert flat["proposed: false alarms"] == "0 of 2"
    assert flat["proposed: failures warned of"] == "1 of 1"
    assert flat["proposed: delay"] is None


def test_a_run_that_collapsed_and_recovered_is_not_healthy(store):
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7))
    write(store, MISTAKE, 0, (0.5, 0.3, 0.8))
    runs = {cell.run_name(0): (cell, claims.End()) for cell in (clean, MISTAKE)}
    cells, _ = results_of(store, runs)
    assert [(cell["failed"], cell["collapsed"]) for cell in cells] == [(0, 0), (1, 1)]


def test_falls_are_counted_from_scores_and_not_after_the_last_iteration(store):
    """What earlier versions measured under that name does not count: here 5 falls of a clean run.
    The monitor looks at the scores before an iteration, so a fall in the last one is too late."""
    clean = Cell("spice", CLEAN, 0.0)
    late = Cell("spice", "independent", 0.4)
    write(store, clean, 0, (0.5, 0.6, 0.7))
    write(store, MISTAKE, 0, (0.5, 0.3, 0.2))
    write(store, late, 0, (0.5, 0.6, 0.3))
    other = row("evaluations", benchmark="course monitor", metric="falls of micro", score=5.0)
    place = store.run(clean.run_name(0)).iteration(1).phase("monitor")
    publish(place, "evaluations", other, label="course")
    runs = {cell.run_name(0): (cell, claims.End()) for cell in (clean, MISTAKE, late)}
    _, monitors = results_of(store, runs)
    [falls] = [r for r in monitors if r["limit"] == "max_falls"]
    assert falls["now: false alarms"] == "0 of 1"
    assert (falls["now: failures warned of"], falls["now: delay"]) == ("1 of 2", 0)


def test_findings_are_counted_by_the_share_of_errors_and_outlive_the_store(
    store, tmp_path, monkeypatch
):
    """The score falls in iteration 2 of the run with errors, and so the finding has no delay."""
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7))
    write(store, MISTAKE, 0, (0.5, 0.6, 0.4))
    runs = {clean.run_name(0): (clean, claims.End()), MISTAKE.run_name(0): (MISTAKE, claims.End())}
    findings = reported_findings(tmp_path, runs)
    [falls] = [r for r in findings if r["finding"] == "score_falls"]
    assert (falls["clean"], falls["own verdicts"]) == ("0 of 1", "0 of 0")
    assert (falls["share 40%"], falls["share 10%"]) == ("1 of 1", "0 of 0")
    assert (falls["failures warned of"], falls["delay"]) == ("1 of 1", 0)

    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "other"))
    runs = {name: (cell, claims.End(in_store=False)) for name, (cell, _) in runs.items()}
    assert reported_findings(tmp_path, runs) == findings


@pytest.mark.parametrize("year", [1960, 2100])
def test_limits_and_findings_are_tested_on_runs_that_began_after_they_were_decided(
    store, tmp_path, year
):
    """The runs have no time of their own, and so began in 1970."""
    clean = Cell("spice", CLEAN, 0.0)
    write(store, clean, 0, (0.5, 0.6, 0.7))
    write(store, MISTAKE, 0, (0.5, 0.3, 0.2))
    runs = {cell.run_name(0): (cell, claims.End()) for cell in (clean, MISTAKE)}
    play.report(replace(GRID, limits_set=datetime(year, 1, 1, tzinfo=UTC)), runs)
    lines = [json.loads(line) for line in (tmp_path / "bench" / "phase.jsonl").open()]
    tests = {line["tested"]: line for line in lines if "tested" in line}
    if year == 2100:
        assert tests == {}
        return
    for name in ("max_falls 0", "score_falls"):
        assert (tests[name]["false alarms"], tests[name]["failures warned of"]) == (
            "0 of 1",
            "1 of 1",
        )


def test_findings_of_another_machine_are_added_with_its_runs(store, tmp_path, monkeypatch):
    write(store, MISTAKE, 0, (0.5, 0.6, 0.4))
    play.report(GRID, {MISTAKE.run_name(0): (MISTAKE, claims.End())})
    (tmp_path / "bench").rename(tmp_path / "theirs")
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "other"))
    play.add_runs(GRID, [tmp_path / "theirs" / "phase-runs.parquet"])
    kept = tmp_path / "bench" / "phase-findings.jsonl"
    assert kept.read_text() == (tmp_path / "theirs" / "phase-findings.jsonl").read_text()
    rules = {line["iteration"]: line["rules"] for line in load(kept)}
    assert "score_falls" not in rules[1]
    assert "score_falls" in rules[2]


def test_findings_of_a_run_that_was_played_again_are_computed_again(store, tmp_path):
    write(store, MISTAKE, 0, (0.5, 0.6, 0.4))
    runs = {MISTAKE.run_name(0): (MISTAKE, claims.End())}
    play.report(GRID, runs)
    path = tmp_path / "bench" / "phase-findings.jsonl"
    right = load(path)
    path.write_text(
        "".join(json.dumps({**line, "began": 1.0, "rules": []}) + "\n" for line in right)
    )
    play.report(GRID, runs)
    assert load(path) == right


def test_a_damaged_file_of_findings_says_what_to_do(tmp_path):
    path = tmp_path / "phase-findings.jsonl"
    path.write_text('{"run": "r", "itera')
    with pytest.raises(ValueError, match="restore it, or delete it"):
        load(path)


def test_one_of_twenty_healthy_runs_may_raise_a_false_alarm():
    assert propose("max_x", [0.1 * n for n in range(19)], GRID) == pytest.approx(1.8)
    assert propose("max_x", [0.1 * n for n in range(20)], GRID) == pytest.approx(1.8)
    assert propose("min_x", [0.1 * n for n in range(20)], GRID) == pytest.approx(0.1)
    assert propose("max_x", [], GRID) is None


def test_a_limit_on_a_distance_holds_on_both_sides_of_zero():
    measured = [
        {"run": "r", "iteration": 1, "highest": 0.1, "lowest": -0.1},
        {"run": "r", "iteration": 2, "highest": 0.1, "lowest": -0.3},
        {"run": "other", "iteration": 1, "highest": 0.9, "lowest": 0.9},
    ]
    assert first_alarm("max_gap", measured, "r", 0.2) == 2
    assert first_alarm("max_gap", measured, "r", 0.3) is None
    assert first_alarm("max_gap", measured, "r", None) is None


def test_a_cell_has_collapsed_in_the_middle_of_its_collapses(store):
    """In iterations 1 and 2."""
    write(store, MISTAKE, 0, (0.5, 0.3, 0.3))
    write(store, MISTAKE, 1, (0.5, 0.6, 0.3))
    runs = {MISTAKE.run_name(seed): (MISTAKE, claims.End()) for seed in (0, 1)}
    [cell], _ = results_of(store, runs)
    assert (cell["collapsed"], cell["in iteration"]) == (2, 1.5)


def test_every_cell_of_the_grid_is_a_configuration_without_alarms():
    grid = Grid.load()
    names = [run.name for run in play.planned(grid)]
    cells_of_method = 2 + len(grid.shapes) * len(grid.shares)
    assert len(set(names)) == len(names) == len(grid.methods) * cells_of_method * grid.seeds
    shares = [run.cell.share for run in play.planned(grid) if run.seed == 0]
    assert shares[:4] == [0] * 4 and shares[4:] == sorted(shares[4:], reverse=True)
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
