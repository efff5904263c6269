"""The view of quotes, and which scores are held out, on given rows."""

from __future__ import annotations

import pytest

from tests.support.rows import publish, row
from warehouse.query import query
from warehouse.store import Place, Store


def answered(place: Place, mark: float | None) -> None:
    """An answer with a quote, and how a comparison of the same place marked it."""
    answer = row("answers", rollout_id="a", task_id="t", answer="x", evidence=["q"], verbatim=1.0)
    publish(place, "answers", answer)
    publish(place, "marks", row("marks", judge_rollout_id="j", rollout_id="a", mark=mark))


def test_a_quote_has_the_mark_of_its_own_place(store: Store) -> None:
    """A reply that is compared again in another step or iteration gets another mark there."""
    run = store.run("r")
    solver = run.iteration(1).phase("solver")
    answered(solver.step(1), mark=0.25)
    answered(solver.step(2), mark=0.5)
    answered(run.iteration(2).phase("solver").step(1), mark=1.0)
    answered(run.iteration(2).phase("replay").step(1), mark=None)
    marked = query(store.root, "select iteration, phase, step, mark from quotes order by all")
    assert [tuple(quote.values()) for quote in marked] == [
        (1, "solver", 1, 0.25),
        (1, "solver", 2, 0.5),
        (2, "replay", 1, None),
        (2, "solver", 1, 1.0),
    ]


def test_an_answer_without_quotes_is_in_no_row_of_quotes(place: Place, store: Store) -> None:
    publish(place, "answers", row("answers", rollout_id="a", task_id="t", answer="x"))
    assert query(store.root, "select * from quotes") == []


@pytest.mark.parametrize(
    ("phase", "benchmark", "is_held_out"),
    [
        ("evaluation", "exam", True),
        (None, "exam", True),
        ("evaluation", "course monitor", False),
        ("probe-1", "exam", False),
        ("replay", "exam", False),
    ],
)
def test_a_score_is_held_out_if_an_evaluation_measured_it(
    store: Store, phase: str | None, benchmark: str, is_held_out: bool
) -> None:
    place = store.run("r").iteration(1)
    if phase is not None:
        place = place.phase(phase)
    publish(place, "evaluations", row("evaluations", benchmark=benchmark, metric="score"))
    [score] = query(store.root, "select is_held_out(phase, benchmark) as told from evaluations")
    assert score["told"] == is_held_out
