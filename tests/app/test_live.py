"""What `selfplay run` shows while a run is at work: a live screen, or lines off the terminal."""

import io

import httpx
import pytest
from rich.console import Console

from flows.app.service import live
from flows.app.service.api import API
from flows.app.service.in_process import record_stages, recorded
from flows.app.service.live import followed, log_file, screen, told
from flows.app.service.site import Site
from tests.tasks.findings.given import RUN, at, rows, score
from warehouse.catalogue import Catalogue
from warehouse.progress import Progress, progress


def lay(store) -> None:
    settings = {"iterations": 3, "steps": 2, "solver": {"steps": 8}}
    store.keep(RUN, "config.json", settings)
    rows(at(store, 1, "solver"), "answers", {"rollout_id": "a"}, {"rollout_id": "b"})
    score(store.run(RUN).iteration(1), "judge monitor", "score", n=10, score=0.9)
    score(store.run(RUN).iteration(1).phase("evaluation"), "held", "score", n=10, score=0.25)
    score(store.run(RUN).iteration(1).phase("questions"), "fixed Reasoner", "score", n=9, score=0.9)


def test_progress_knows_iteration_phase_step_and_the_last_held_out_score(store):
    lay(store)
    rows(at(store, 2, "solver", step=3), "answers", {"rollout_id": "c"})
    with store.lock(at(store, 2, "solver", step=3).address("rewards")):
        now = progress(Catalogue(store), RUN)
    assert now.place == "iteration 2 of 3, solver, step 3 of 8"
    assert (now.table, now.num_tables, now.benchmark, now.score) == ("rewards", 5, "held", 0.25)
    # all tables were made in 0 s
    assert now.left_s == 0


def test_the_time_left_is_known_after_the_first_iteration_and_a_new_run_is_in_preparation(store):
    assert progress(Catalogue(store), RUN).place == "preparation"
    lay(store)
    assert progress(Catalogue(store), RUN).left_s is None


def test_the_live_screen_fits_eighty_columns():
    now = Progress(
        num_tables=691,
        iteration=2,
        iterations=3,
        phase="challenger",
        step=4,
        steps=4,
        table="rollouts.challenger",
        rows=1234,
        rows_before=5678,
        rate=12.34,
        left_s=7500,
        benchmark="micro",
        score=0.75,
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(screen("mine", now))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= 80
    assert "iteration 2 of 3, challenger, step 4 of 4" in shown
    assert "rollouts.challenger: 1,234 rows of about 5,678, 12.3 rows/s" in shown
    assert "about 2 h 5 min of stages" in shown and "0.750 on micro" in shown
    assert told(now) == "; about 2 h 5 min of stages left; last score 0.750 (micro)"


def test_off_the_terminal_new_steps_are_lines_and_stages_go_to_the_file(store, capsys, monkeypatch):
    monkeypatch.setattr(live, "REFRESH_S", 0.01)
    lay(store)
    with followed(store, RUN) as follower:
        follower("09:00:00 r/iter-001/solver/step-001/answers: 2 rows in 0.1 s")
        follower("09:00:01 warning: the disk is nearly full")
        while not follower._last_place:
            pass
    shown = capsys.readouterr().out
    assert "step-001/answers" not in shown and "the disk is nearly full" in shown
    assert "r: iteration 1 of 3, evaluation, step 1" not in shown
    assert f"log of all stages: {log_file(store, RUN)}" in shown
    assert len(log_file(store, RUN).read_text().splitlines()) == 2


FLOW_RUN = {"id": "f", "name": "brave-fox"}


@pytest.fixture
def gone():
    """A server that is gone once it has heard that the flow run is running."""

    def answer(request):
        if b"RUNNING" in request.content and b"dynamic_key" not in request.content:
            return httpx.Response(200, json={})
        raise httpx.ConnectError("connection refused")

    return API(httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer)))


def test_a_flow_run_ends_as_it_did_if_its_server_is_gone(tmp_path, store, gone):
    lay(store)
    site = Site(tmp_path, tmp_path)
    said = []
    with recorded(site, gone, FLOW_RUN, said.append):
        record_stages(gone, FLOW_RUN, store.tables(RUN), said.append)
    assert said[:2] == [
        "not recorded: the stages of the flow run (connection refused)",
        "not recorded: the end of the flow run (connection refused)",
    ]
    with pytest.raises(KeyError, match="its own"), recorded(site, gone, FLOW_RUN, said.append):
        raise KeyError("its own")
