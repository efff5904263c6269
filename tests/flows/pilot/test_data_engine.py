"""A method makes tasks without training, until as many as wanted have passed its filter."""

from __future__ import annotations

import json
from functools import partial

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.pilot.data_engine import make_tasks
from flows.pilot.play import play_pilot
from flows.runtime.request import Request
from flows.spice.flow import spice_iteration
from tests.flows.spice.test_played import SETTINGS, Roles
from tests.support.rows import publish, row
from tests.support.scripted_play import Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    """A request for tasks about three documents, of which two get a valid question."""
    rows = [{"id": f"d{i}", "text": f"In d{i} seven and five make twelve."} for i in range(3)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(tmp_path / "model"))
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    perform(Script(Roles().say), monkeypatch)
    settings = {**SETTINGS, "models.base": model, "engine.model": model}
    return Request(
        flow="spice-iteration", profile="micro", run="r", overrides=settings, corpus=str(corpus)
    )


def test_iterations_go_on_until_enough_tasks_are_kept_and_nothing_is_trained(request_of, tmp_path):
    made = make_tasks(spice_iteration, request_of, target=2)
    assert (made.num_kept, made.stopped) == (2, None)
    assert made.num_tokens > 0
    assert made.tokens_per_task == made.num_tokens / 2
    store = Store(tmp_path / "store")
    assert query(store.root, "select count(*) as n from updates")[0]["n"] == 0


def test_a_second_iteration_tops_up_what_the_first_kept(request_of, tmp_path):
    # the script has a valid question for d0 in every iteration, and for d1 in the first alone
    made = make_tasks(spice_iteration, request_of, target=3)
    assert made.num_kept == 3
    kept = """
        select iteration, count(*) as n from selections
        where run = 'r' and kept and label is null group by all order by all
    """
    assert [tuple(row.values()) for row in query(tmp_path / "store", kept)] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("play", [partial(make_tasks, target=2), play_pilot])
def test_a_run_that_was_trained_is_left_as_it_is(request_of, tmp_path, play):
    """Tables of the untrained policy would replace those that it was trained on."""
    store = Store(tmp_path / "store")
    place = store.run("r").iteration(1).phase("reasoner").step(1)
    publish(place, "updates", row("updates", role="reasoner"))
    with pytest.raises(ValueError, match=r"'r' has been trained.*name another run with --run"):
        play(spice_iteration, request_of)
    assert [table.address for table in store.tables("r")] == [place.address("updates")]


def test_what_was_made_is_exported_by_the_same_command_as_a_trained_run(request_of, tmp_path):
    make_tasks(spice_iteration, request_of, target=2)
    done = CliRunner().invoke(
        cli.main, ["export", "r", "--tasks", "trl", "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    assert (
        sum(len((tmp_path / f"out/{s}.jsonl").read_text().splitlines()) for s in ("train", "test"))
        == 2
    )
