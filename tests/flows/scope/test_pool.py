"""SCOPE's pool over a script: nine documents in batches of three, drawn one after another and
together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.method import opened
from flows.run import Run
from flows.scope.config import Config
from flows.scope.flow import collect_tasks
from flows.scope.steps import Pool, Scope, batches_before
from flows.settings import profile
from tests.flows.scope.test_played import SETTINGS, TOWNS, say
from tests.support.scripted_play import Script, any_text_model, perform
from warehouse.store import Store

NINE = {
    **SETTINGS,
    "pool.candidates_per_batch": 3,
    "pool.max_batches": 3,
    "pool.short_pool": "fewer_steps",
    "solver.steps": 4,  # of two tasks each
}


def over_nine_documents(folder: Path) -> dict[str, object]:
    """Settings of a run over nine documents, which are written to `folder`."""
    texts = [
        f"{t} has a lighthouse, a founder, a river and a bridge that all of {t} is proud of."
        for t in TOWNS
    ]
    rows = [{"id": t, "title": t, "text": text} for t, text in zip(TOWNS, texts, strict=True)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    own = {"models.base": model, "engine.model": model, "corpus": str(folder / "corpus.jsonl")}
    return {**NINE, **own}


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Pool]:
    """By the number of batches that may be drawn at once."""
    folder: Path = tmp_path_factory.mktemp("pool")
    own = over_nine_documents(folder)
    store = Store(folder / "store")
    with pytest.MonkeyPatch.context() as patch:
        perform(Script(say), patch)
        return {
            most: _collect(store, {**own, "pool.batches_at_once": most}, f"by-{most}")
            for most in (1, 2, 8)
        }


def _collect(store: Store, settings: dict[str, object], name: str) -> Pool:
    with opened(profile.load(Config, "micro", settings), store, name) as run:
        return _of_iteration(run, 1, 0)


def _of_iteration(run: Run[Config], iteration: int, num_batches_before: int) -> Pool:
    players = run.player("challenger"), run.player("solver")
    place = run.place.iteration(iteration)
    return collect_tasks(Scope.prepare(run), place, *players, num_batches_before)


def test_batches_are_drawn_together_while_all_of_them_are_needed(pools) -> None:
    """Eight tasks need three batches of three. Where two are drawn first, more than three tasks are
    still missing, but `max_batches` allows only one batch more."""
    drawn = {most: [table.num_rows for table in pool.tasks] for most, pool in pools.items()}
    assert drawn == {1: [3, 3, 3], 2: [6, 3], 8: [9]}
    assert {pool.num_batches for pool in pools.values()} == {3}


def test_batches_drawn_together_have_the_documents_and_keep_the_tasks_of_batches_one_after_another(
    pools,
) -> None:
    documents = {
        most: [row["document_id"] for t in pool.tasks for row in t.rows()]
        for most, pool in pools.items()
    }
    assert sorted(documents[1]) == sorted(TOWNS)
    assert documents[1] == documents[2] == documents[8]
    kept = {
        most: {row["document_id"] for t in pool.selections for row in t.rows() if row["kept"]}
        for most, pool in pools.items()
    }
    assert kept[1] == kept[2] == kept[8] == {"Arvel", "Borin"}


def test_a_pool_begins_behind_the_documents_of_earlier_ones_whatever_the_limit_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(Script(say), monkeypatch)
    own = over_nine_documents(tmp_path)
    store = Store(tmp_path / "store")

    def drawn(most: int) -> list[list[str]]:
        settings = {**own, "pool.max_batches": most, "iterations": 2}
        settings["monitor.max_repeat_of_earlier"] = None
        with opened(profile.load(Config, "micro", settings), store, "r") as run:
            pools = [_of_iteration(run, 1, 0), _of_iteration(run, 2, 1)]
        tables = [table for pool in pools for table in pool.tasks]
        return [[row["document_id"] for row in table.rows()] for table in tables]

    one = drawn(1)
    assert len({document for batch in one for document in batch}) == 6
    # the first batch of each iteration stays, and one more follows
    first, more, second, last = drawn(2)
    assert [first, second] == one
    assert more == second and len({*second, *last}) == 6


def test_a_branch_draws_behind_the_documents_of_the_run_that_it_branches_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(Script(say), monkeypatch)
    own = over_nine_documents(tmp_path)
    store = Store(tmp_path / "store")
    whole = _collect(store, {**own, "pool.batches_at_once": 2}, "whole")
    branch = {"branch": {"run": "whole", "iteration": 1}, "iterations": 2}
    with opened(profile.load(Config, "micro", {**own, **branch}), store, "branch") as run:
        assert batches_before(Scope.prepare(run)) == whole.num_batches == 3
