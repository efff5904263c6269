"""Runs of a study that outlive their stores: kept in one, counted in another."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.app import claims
from flows.app.kept_runs import KeptRun, KeptRuns, add, earliest, is_news, settings_hash
from flows.app.phase import play
from flows.app.phase.grid import Cell, Grid
from flows.app.study import Claim, Seed, Study, beats, raises
from tests.support.rows import publish, row
from warehouse.query import query
from warehouse.store import Store

STUDY = Study(
    name="toy",
    method="spice",
    variants={"whole": {}, "one step": {"steps": 1}},
    claims=(raises("whole", at_least=0.2), beats("whole", "one step", "steps help")),
    num_seeds=2,
)
WHOLE, ONE_STEP = STUDY.variants


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """A function that goes on in a store of another name; both stores share `data/bench`."""
    monkeypatch.setattr(claims, "BENCH", tmp_path / "bench")

    def use(name):
        monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / name))
        return Store(tmp_path / name)

    return use


@pytest.fixture
def finished_runs(monkeypatch):
    """Every run with tables is finished; what is played is noted."""
    played = []
    monkeypatch.setattr(
        claims,
        "next_stage",
        lambda asked: (None if any(claims.open_store().tables(asked.run)) else "not begun", ""),
    )
    monkeypatch.setattr(claims, "play", lambda asked, pool: played.append(asked.run))
    return played


def write(store, run, *scores):
    for iteration, score in enumerate(scores):
        publish(
            store.run(run).iteration(iteration),
            "evaluations",
            row("evaluations", benchmark="micro", metric="score", score=score, n=100),
        )


def report(study=STUDY):
    """The tables of the finished runs, which are kept."""
    runs = claims.finished(study)
    return claims.report(study, {variant: seeds for variant, seeds in runs.items() if seeds})


def keep(study=STUDY):
    """Keep the finished runs as a report does, without its tables, figure and page."""
    claims.keep_finished(study, claims.finished(study))


def test_seeds_of_two_stores_are_judged_together(stores, finished_runs, tmp_path):
    first = stores("first")
    write(first, STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    write(first, STUDY.run_name(ONE_STEP, 0), 0.25, 0.375)
    keep()
    second = stores("second")
    write(second, STUDY.run_name(WHOLE, 1), 0.25, 0.75)
    text = report()
    assert "| 2 | 0.375 [-1.213, 1.963] | 0.250, 0.500 |" in text, "the gain, of both stores"
    assert "| 1 of 2 | 0.125 | 0.125 |" in text, "the difference, of the first alone"
    shutil.rmtree(first.root)
    assert report() == text, "without the first store, too"


def test_runs_of_another_machine_are_added(stores, finished_runs, monkeypatch, tmp_path):
    """Both have seed 0, of which the first stays; seed 1 is new."""
    write(stores("first"), STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    keep()
    ours = claims.kept_file("toy")
    monkeypatch.setattr(claims, "BENCH", tmp_path / "another machine")
    other = stores("second")
    write(other, STUDY.run_name(WHOLE, 0), 0.25, 0.625)
    write(other, STUDY.run_name(WHOLE, 1), 0.25, 0.75)
    keep()
    theirs = claims.kept_file("toy")
    assert add(ours, theirs) == [STUDY.run_name(WHOLE, 1)]
    kept = KeptRuns.load(ours)
    lasts = [row["score"] for row in kept.evaluations(kept.runs).to_pylist() if row["iteration"]]
    assert lasts == [0.5, 0.75]
    assert add(ours, theirs) == [], "a second time"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        add(ours, tmp_path / "nowhere.parquet")


def test_of_two_runs_with_other_settings_the_one_that_began_last_is_kept(tmp_path):
    def kept(settings, began):
        return KeptRun(settings, "1", began, seconds=1.0, stopped="", gpu_s=0.0)

    assert is_news(kept("new", 2.0), kept("old", 1.0))
    assert not is_news(kept("old", 1.0), kept("new", 2.0))
    assert not is_news(kept("same", 2.0), kept("same", 1.0))


def test_the_page_draws_the_scores_of_kept_runs_too(stores, finished_runs):
    first = stores("first")
    write(first, STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    write(first, STUDY.run_name(ONE_STEP, 1), 0.25, 0.375)
    write(first, STUDY.run_name(WHOLE, 1), 0.25, 0.75)
    report()
    second = stores("second")
    report()
    page = (second.root / "reports" / "toy-claims.html").read_text()
    assert "micro: best whole 0.625, worst one step 0.375" in page


def test_a_kept_run_is_not_played_again_unless_asked_to(stores, finished_runs):
    write(stores("first"), STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    keep()
    stores("second")
    claims.play_study(STUDY, [WHOLE], [0, 1])
    assert finished_runs == [STUDY.run_name(WHOLE, 1)]
    [whole, _] = claims.progress(STUDY)
    assert (whole["finished seeds"], whole["left"]) == ("0", "1: not begun")
    claims.play_study(STUDY, [WHOLE], [0], again=True)
    assert finished_runs[1:] == [STUDY.run_name(WHOLE, 0)]


def test_a_run_with_other_settings_does_not_count(stores, finished_runs):
    write(stores("first"), STUDY.run_name(ONE_STEP, 0), 0.25, 0.5)
    keep()
    stores("second")
    changed = replace(STUDY, variants={WHOLE: {}, ONE_STEP: {"steps": 2}})
    assert claims.finished(STUDY)[ONE_STEP] == {Seed(STUDY, 0): claims.End(in_store=False)}
    assert claims.finished(changed)[ONE_STEP] == {}


def test_a_run_played_again_replaces_the_kept_one(stores, finished_runs):
    name = STUDY.run_name(WHOLE, 0)
    write(stores("first"), name, 0.25, 0.5)
    keep()
    write(stores("second"), name, 0.25, 0.625)
    keep()
    kept = KeptRuns.load(claims.kept_file("toy"))
    assert [row["score"] for row in kept.evaluations([name]).to_pylist()] == [0.25, 0.625]


def test_an_unfinished_run_of_the_store_does_not_replace_a_kept_one(
    stores, finished_runs, monkeypatch
):
    name = STUDY.run_name(WHOLE, 0)
    write(stores("first"), name, 0.25, 0.5)
    keep()
    write(stores("second"), name, 0.25)
    monkeypatch.setattr(claims, "next_stage", lambda asked: ("iter-001/tasks: never made", ""))
    keep()
    kept = KeptRuns.load(claims.kept_file("toy"))
    assert [row["score"] for row in kept.evaluations([name]).to_pylist()] == [0.25, 0.5]


def test_the_alarm_that_stopped_a_kept_run_is_known(stores, finished_runs):
    write(stores("first"), STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    claims.report(STUDY, {WHOLE: {Seed(STUDY, 0): claims.End("reference_error is 0.9")}})
    stores("second")
    [end] = claims.finished(STUDY)[WHOLE].values()
    assert end == claims.End("reference_error is 0.9", in_store=False)


def test_a_claim_about_other_tables_rests_on_runs_of_the_store(stores, finished_runs):
    """Only evaluations are kept."""
    about_tasks = Claim.of(
        STUDY.variants,
        "select count(*) from tasks where run = $whole",
        says="it has tasks",
        number="tasks",
    )
    study = replace(STUDY, claims=(STUDY.claims[0], about_tasks))
    write(stores("first"), study.run_name(WHOLE, 0), 0.25, 0.5)
    keep(study)
    write(stores("second"), study.run_name(WHOLE, 1), 0.25, 0.5)
    text = report(study)
    [learns, has_tasks] = [line for line in text.splitlines() if "| check |" in line]
    assert "| 2 |" in learns
    assert "| 1 of 2 |" in has_tasks


def test_a_threshold_that_was_written_down_before_a_kept_run_stays_so(stores, finished_runs):
    """The second store first sees the claim after the run was kept. Runs of tests began in 1970."""
    first = stores("first")
    says = STUDY.claims[0].says
    (first.root / "claims").mkdir(parents=True)
    (first.root / "claims" / "toy.json").write_text(
        json.dumps({says: {"threshold": "above 0.2", "at": -1.0}})
    )
    write(first, STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    keep()
    stores("second")
    text = report()
    assert "| above 0.2 | yes | 1 of 2 |" in text
    higher = replace(STUDY, claims=(raises(WHOLE, at_least=0.3),))
    assert "| above 0.3 | no | 1 of 2 |" in report(higher)


def test_of_thresholds_written_down_twice_the_first_stays():
    later = {"it learns": {"threshold": "above 0.1", "at": 2.0}}
    sooner = {"it learns": {"threshold": "above 0.2", "at": 1.0}}
    assert earliest(later, sooner) == earliest(sooner, later) == sooner


def test_the_file_is_a_table_for_duckdb_with_the_version_of_the_project(stores, finished_runs):
    store = stores("first")
    write(store, STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    keep()
    file = claims.kept_file("toy")
    rows = query(store.root, f"select run, iteration, score, version from '{file}' order by all")
    assert [(row["iteration"], row["score"]) for row in rows] == [(0, 0.25), (1, 0.5)]
    assert all(row["run"] == "toy-whole-0" and row["version"] for row in rows)


@pytest.mark.parametrize(
    "damage", [b"", b"PAR1", None], ids=["empty", "truncated", "another table"]
)
def test_a_file_that_holds_no_runs_is_refused(stores, finished_runs, damage):
    write(stores("first"), STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    file = claims.kept_file("toy")
    file.parent.mkdir(parents=True)
    if damage is None:
        pq.write_table(pa.table({"run": ["toy-whole-0"]}), file)
    else:
        file.write_bytes(damage)
    with pytest.raises(ValueError, match=r"toy-runs.parquet does not hold runs of a study"):
        claims.finished(STUDY)


def test_the_hash_is_of_the_settings_that_are_not_defaults(stores):
    asked = claims.request(STUDY, WHOLE, 0)
    default = claims.find_method(asked.flow).config.model_fields["corpus_documents"].default
    said = {**asked.overrides, "corpus_documents": default}
    other = {**asked.overrides, "corpus_documents": default + 1}
    hashes = [
        settings_hash(asked.model_copy(update={"overrides": overrides}))
        for overrides in (asked.overrides, said, other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_run_on_a_gpu_counts_as_the_same_run(stores):
    asked = claims.request(STUDY, WHOLE, 0)
    gpu = claims.on_gpu(asked)
    assert gpu.settings["engine.device"] == "cuda"
    assert "engine.dtype" not in gpu.settings, "without adapters"
    assert settings_hash(gpu) == settings_hash(asked)


def test_adapters_on_a_gpu_are_served_in_half_precision(stores):
    peps = Study.load("peps")
    gpu = claims.on_gpu(claims.request(peps, "own questions", 0))
    assert gpu.settings["engine.dtype"] == "float16"


def test_the_table_says_how_many_runs_used_a_gpu(stores, finished_runs):
    store = stores("first")
    for seed in (0, 1):
        write(store, STUDY.run_name(WHOLE, seed), 0.25, 0.5)
    runs = {WHOLE: claims.finished(STUDY)[WHOLE]}
    kept = claims.keep_finished(STUDY, runs)
    first = STUDY.run_name(WHOLE, 0)
    on_one = {**kept.runs, first: replace(kept.runs[first], gpu_s=2.5)}
    [row] = claims.describe_variants(STUDY, runs, replace(kept, runs=on_one))
    assert (row["seeds"], row["on a GPU"]) == ("2", 1)
    [row] = claims.describe_variants(STUDY, runs, kept)
    assert "on a GPU" not in row, "where no run used one"


def test_how_long_runs_take_is_not_told_by_those_on_a_gpu(stores, finished_runs, monkeypatch):
    write(stores("first"), STUDY.run_name(WHOLE, 0), 0.25, 0.5)
    keep()
    stores("second")
    [whole, _] = claims.progress(STUDY)
    assert whole["minutes left"] == 0
    kept = KeptRuns.load(claims.kept_file("toy"))
    runs = {name: replace(run, gpu_s=2.5) for name, run in kept.runs.items()}
    monkeypatch.setattr(KeptRuns, "load", lambda path: replace(kept, runs=runs))
    [whole, _] = claims.progress(STUDY)
    assert (whole["finished seeds"], whole["minutes left"]) == ("0", None)


def test_cells_of_the_phase_diagram_are_kept_too(stores, finished_runs, tmp_path):
    grid = replace(
        Grid.load(),
        methods={"spice": {"profile": "micro", "settings": {}}},
        shapes=["mistake"],
        shares=[0.4],
        seeds=1,
    )
    cell = Cell("spice", "mistake", 0.4)
    write(stores("first"), cell.run_name(0), 0.5, 0.6)
    play.report(grid, play.finished(grid))
    stores("second")
    assert play.finished(grid) == {cell.run_name(0): (cell, claims.End(in_store=False))}
    play.play_grid(grid)
    assert cell.run_name(0) not in finished_runs
    assert len(finished_runs) == len(list(play.planned(grid))) - 1
