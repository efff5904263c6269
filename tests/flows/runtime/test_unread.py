"""A role whose replies are all malformed stops the run, or causes a warning."""

from __future__ import annotations

from typing import Any

import pytest

from flows.runtime.unread import UnreadError, check_read
from flows.settings.profile import MethodSettings
from tasks.monitors.monitor import Alarm
from tasks.read import reason
from tests.support.rows import publish, row
from warehouse.store import Place, Table

CONFIG: dict[str, Any] = {
    "models": {"base": "base"},
    "engine": {"max_model_len": 64, "dtype": "float32"},
}


@pytest.fixture
def place(store) -> Place:
    return store.run("r").iteration(1).phase("training").step(1)


def check(at: Place, rows: Table, *, attempt: int | None = None, unread: str = "stop") -> None:
    check_read(
        at,
        rows,
        MethodSettings.model_validate({**CONFIG, "unread": unread}),
        role="solver",
        attempt=attempt,
    )


def answers_of(place: Place, *malformed: str | None) -> Table:
    rows = (
        row("answers", rollout_id=f"a{i}", malformed=reason) for i, reason in enumerate(malformed)
    )
    return publish(place, "answers", *rows)


def test_a_run_stops_where_nothing_of_sixteen_replies_can_be_read_and_says_why(place):
    with pytest.raises(
        UnreadError, match=r"none of 16 replies of the solver can be read: no box 15, cut off 1\."
    ):
        check(place, answers_of(place, *["no box"] * 15, "cut off"))


def test_a_reader_that_fails_is_not_blamed_on_the_model(place):
    failed = reason(KeyError("x"))
    with pytest.raises(
        UnreadError, match=r"KeyError 15, cut off 1\. These are exceptions of the reader"
    ):
        check(place, answers_of(place, *[failed] * 15, "cut off"))


@pytest.mark.parametrize(
    "reasons", [["no box"] * 15, ["no box"] * 12 + [None] * 3, ["no box"] * 16 + [None] * 4]
)
def test_it_goes_on_where_a_fifth_can_be_read_or_few_were_asked_for(place, reasons):
    check(place, answers_of(place, *reasons))


def test_too_few_that_can_be_read_are_an_alarm_but_for_attempts_and_where_the_configuration_goes_on(
    place,
):
    answers = answers_of(place, *["no box"] * 17, *[None] * 4)
    with pytest.raises(Alarm, match=r"malformed is 0\.81, the limit is 0\.8"):
        check(place, answers)
    check(place, answers, attempt=1)
    check(place, answers, unread="warn")


def test_fifteen_replies_are_few_whatever_number_of_rows_they_are_read_into(place):
    rows = [
        row("rubrics", criterion_id=f"b{i}", judge_rollout_id=f"b{i}", malformed="no rubric")
        for i in range(14)
    ]
    rows += [
        row("rubrics", criterion_id=f"g{k}", judge_rollout_id="g", position=k, criterion="c")
        for k in range(3)
    ]
    check(place, publish(place, "rubrics", *rows))


def test_all_of_a_later_attempt_may_be_unreadable_but_the_engine_may_not_fail(place, store):
    """Later attempts are about the few documents that had none, so 24 replies may be about two
    hopeless ones."""
    with pytest.raises(UnreadError):
        check(place, answers_of(place, *["no box"] * 24), attempt=1)
    check(place, answers_of(place, *["no box"] * 24), attempt=3)
    elsewhere = store.run("r").iteration(1).phase("training").step(2)
    with pytest.raises(Alarm, match="engine_failure"):
        check(elsewhere, answers_of(elsewhere, *["no box"] * 16, *["engine error"] * 8), attempt=3)


def test_it_only_warns_in_evaluation_or_where_the_configuration_says_so(store, place, caplog):
    held_out = store.run("r").iteration(0).phase("evaluation")
    check(held_out, answers_of(held_out, *["no box"] * 16))
    assert "none of 16 replies of the solver can be read: no box 16" in caplog.text
    caplog.clear()
    check(place, answers_of(place, *["no box"] * 16), unread="warn")
    assert "none of 16 replies" in caplog.text
