"""A small part of `make chaos`: kills, and a comparison with an undisturbed run."""

import pytest

from tests.end_to_end import chaos
from tests.end_to_end.test_scope import SMALL
from tests.support.homes import with_database

pytestmark = pytest.mark.slow


def test_a_run_whose_trainer_and_then_whose_machine_was_killed_ends_with_the_tables_of_an_untouched_one(  # noqa: E501
    tmp_path, tmp_path_factory, monkeypatch
):
    with_database(tmp_path / "prefect", tmp_path_factory)
    monkeypatch.setattr(chaos, "WINDOW_S", (1.0, 15.0))
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))  # undone afterwards: the harness sets them
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(chaos, "KINDS", ("trainer", "all"))
    found = chaos.make(tmp_path, num_faults=2, seed=3, faults_per_run=2, settings=SMALL)
    assert found["by_kind"] == {"all": 1, "trainer": 1}
    assert (found["rows_lost"], found["rows_doubled"], found["tables_equal"]) == (0, 0, True)
