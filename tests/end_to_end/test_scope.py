"""The whole system with real parts: Prefect's server, worker and deployment, vLLM, Parquet,
DuckDB, TRL."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data.micro.training.model import MicroModel, save_checkpoint
from flows.app.command.demo import SCORES
from flows.runtime.request import Request
from flows.scope.flow import scope_iteration
from tasks.monitors.monitor import Alarm
from tests.support.homes import with_database
from tests.support.machines import shared_machines
from tests.support.workload import assert_as_planned
from warehouse.query import query
from warehouse.store import Store

pytestmark = pytest.mark.slow

SELFPLAY = str(Path(sys.executable).parent / "selfplay")
SMALL = {
    "iterations": 1,
    "num_engines": 1,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 4,
    "challenger.group_size": 4,
    "pool.candidates_per_batch": 24,
    "solver.steps": 1,
    "solver.prompts_per_step": 4,
    "solver.group_size": 4,
    "judge.canaries": 40,
    "monitor.max_canary_error": 0.2,  # with so few, some may be wrong by chance
    "monitor.max_judge_minus_oracle": 0.2,
    "evaluation.num_tasks": 24,
}


class Site:
    """This test's own Prefect home, port and store."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.store = folder / "store"
        self.environment = {
            **os.environ,
            "SELFPLAY_PREFECT_HOME": str(folder / "prefect"),
            "SELFPLAY_PREFECT_PORT": str(port),
            "SELFPLAY_STORE": str(self.store),
        }

    def selfplay(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SELFPLAY, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def run(self, name: str, *more: str, **changed: Any) -> subprocess.CompletedProcess[str]:
        settings = [f"--set={key}={value}" for key, value in {**SMALL, **changed}.items()]
        return self.selfplay(
            "run", "scope-iteration", "--profile", "micro", "--run", name, *settings, *more
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return query(self.store, sql)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with_database(folder / "prefect", tmp_path_factory)
    made = Site(folder)
    try:
        yield made
    finally:
        made.selfplay("down")


@pytest.fixture(scope="module")
def played(site: Site) -> str:
    done = site.run("first")
    assert done.returncode == 0, done.stdout + done.stderr
    return "first"


def test_a_deployment_runs_every_stage_and_both_policies_learn(site: Site, played: str) -> None:
    updates = site.rows(f"select role, metrics from updates where run = '{played}'")
    assert {row["role"] for row in updates} == {"challenger", "solver"}
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)
    policies = site.rows(f"select policy_hash from policies where run = '{played}'")
    assert len({row["policy_hash"] for row in policies}) == 4  # base, grader, one update each


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(
    site: Site, played: str
) -> None:
    assert_as_planned("scope", SMALL, site.store, played, beside=frozenset({"canary"}))


def test_the_demo_shows_held_out_scores_and_no_monitors(site: Site, played: str) -> None:
    shown = query(site.store, SCORES, {"run": played})
    assert [(row["iteration"], row["benchmark"], row["n"]) for row in shown] == [
        (0, "micro", 24),
        (1, "micro", 24),
    ]


def test_sampling_and_training_see_the_same_log_probabilities(site: Site, played: str) -> None:
    """One step on its own rollouts is on-policy: rho is 1 up to rounding."""
    updates = site.rows(f"select metrics['mean_ratio'] as rho from updates where run = '{played}'")
    assert updates
    for row in updates:
        assert row["rho"] == pytest.approx(1, abs=1e-4)


def test_one_statement_goes_from_every_batch_row_to_its_document(site: Site, played: str) -> None:
    rows = site.rows(f"""
        select
            count(*) as n,
            count(document_title) as with_document,
            count(policy) as with_policy,
            count(seed) as with_seed
        from lineage where run = '{played}'
        """)[0]
    assert rows["n"] == rows["with_document"] == rows["with_policy"] == rows["with_seed"] > 0


def test_prompts_and_retrieved_text_are_masked_out_of_the_loss(site: Site, played: str) -> None:
    rows = site.rows(f"""
        select
            list_sum(b.loss_mask) as trained,
            r.num_sampled_tokens as sampled,
            len(b.completion_token_ids) as shown,
            r.num_turns
        from batches as b join rollouts as r using (run, rollout_id) where run = '{played}'
        """)
    assert all(row["trained"] == row["sampled"] for row in rows)
    assert any(row["shown"] > row["sampled"] for row in rows if row["num_turns"] > 1)


def test_the_report_needs_nothing_else(site: Site, played: str) -> None:
    text = (site.store / "reports" / played / "iter-001.html").read_text()
    assert 'src="http' not in text
    # the viewer, if it is running
    assert set(re.findall(r'href="(http[^/]*//[^/:]*)', text)) == {"http://127.0.0.1"}


def test_the_same_command_again_rebuilds_nothing(site: Site, played: str) -> None:
    made = {table.address: table.recipe["started_at"] for table in Store(site.store).tables(played)}
    assert site.run(played).returncode == 0
    assert {
        table.address: table.recipe["started_at"] for table in Store(site.store).tables(played)
    } == made


def test_another_configuration_under_the_same_name_is_refused(site: Site, played: str) -> None:
    done = site.run(played, **{"solver.steps": 2})
    assert done.returncode == 1
    assert "solver.steps 1, now 2" in done.stdout + done.stderr


def test_why_says_that_all_is_fresh_or_what_a_change_would_cost(site: Site, played: str) -> None:
    assert site.selfplay("why", played).stdout.startswith("all ")
    said = site.selfplay("why", played, "--set", "solver.reward.format_weight=0.4").stdout
    assert "iter-001/solver/step-001/rewards" in said
    assert "settings.format_weight 0.5, now 0.4" in said
    assert "challenger/step-001/rewards" not in said
    assert "no stage 'grades'; there are" in site.selfplay("why", played, "grades").stderr


def test_one_stage_is_made_again_and_nothing_that_came_out_the_same(
    site: Site, played: str
) -> None:
    address = f"{played}/iter-001/solver/step-001/advantages"
    before = {
        table.address: table.recipe["started_at"] for table in Store(site.store).tables(played)
    }
    done = site.selfplay("rerun", played, "solver/advantages", "--iteration", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    after = {
        table.address: table.recipe["started_at"] for table in Store(site.store).tables(played)
    }
    assert {a for a in after if after[a] != before[a]} == {address}
    log = (site.store / "logs" / played / "stages.log").read_text(encoding="utf-8")
    assert f"{address}: stale, rebuilding: requested" in log


def test_a_damaged_file_is_named_and_made_again_from_what_stands(site: Site, played: str) -> None:
    assert site.selfplay("verify", played).returncode == 0
    part = (
        site.store
        / "runs"
        / played
        / "iter-001"
        / "pool"
        / "step-001"
        / "judgments.grade"
        / "part-00000.parquet"
    )
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    found = site.selfplay("verify", played)
    assert found.returncode == 1
    assert "pool/step-001/judgments.grade/part-00000.parquet has" in found.stdout
    assert site.run(played).returncode == 0
    assert part.read_bytes() == whole
    assert site.selfplay("verify", played).returncode == 0


def test_clean_asks_first_and_leaves_nothing_to_be_made_again(site: Site, played: str) -> None:
    shown = site.selfplay("clean", played, "--keep-last", "0", "--rollouts")
    assert "rollouts" in shown.stdout and shown.returncode == 1  # nobody said yes
    done = site.selfplay("clean", played, "--keep-last", "0", "--rollouts", "--yes")
    assert "freed" in done.stdout, done.stdout + done.stderr
    assert site.selfplay("why", played).stdout.startswith("all ")
    assert site.selfplay("verify", played).returncode == 0


@pytest.fixture(scope="module")
def play(site: Site) -> Iterator[Callable[..., None]]:
    """Play a run in this process, without the server; all these runs share an engine and a
    trainer."""

    def made(name: str, corpus: Path | None = None, **changed: Any) -> None:
        asked = {
            "flow": "scope-iteration",
            "profile": "micro",
            "run": name,
            "overrides": {**SMALL, **changed},
        }
        scope_iteration.run(Request(**asked, corpus=str(corpus) if corpus else None))

    with pytest.MonkeyPatch.context() as patch, shared_machines():
        patch.setenv("SELFPLAY_STORE", str(site.store))
        yield made


def test_a_corpus_that_the_model_cannot_read_runs_to_its_end(
    site: Site, play: Callable[..., None]
) -> None:
    corpus = Path(__file__).parents[1] / "data" / "wiki_passages_30.parquet"
    play("english", corpus, **{"evaluation.benchmark": "none", "unread": "warn"})
    counted = site.rows(
        "select count(*) as n, count(malformed) as malformed from tasks where run = 'english'"
    )[0]
    [dropped] = site.rows("""
        select count(*) as n, count(reason) as with_reason
        from selections where run = 'english' and not kept
        """)
    assert counted["n"] > 0 and counted["malformed"] > 0
    assert dropped["n"] == dropped["with_reason"] > 0


def test_a_judge_that_errs_stops_the_run_before_it_trains_the_solver(
    site: Site, play: Callable[..., None], tmp_path: Path
) -> None:
    save_checkpoint(MicroModel(), tmp_path / "untrained")
    with pytest.raises(Alarm, match=r"monitor\.max_canary_error"):
        play(
            "erring",
            **{"models.grader": str(tmp_path / "untrained"), "evaluation.benchmark": "none"},
        )
    assert (
        site.rows("select count(*) as n from updates where run = 'erring' and role = 'solver'")[0][
            "n"
        ]
        == 0
    )
