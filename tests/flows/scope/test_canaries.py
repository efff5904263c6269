"""When SCOPE's grader is watched: answers of known verdict are graded wherever there are rubrics
to make them from."""

from types import SimpleNamespace

import pytest

from flows.scope.monitor import watch_canaries, watch_gap
from tests.support.rows import publish, row
from warehouse.store import Table


class Graded(Exception):
    """The grader was asked."""


class Watched:
    """A run with up to `canaries` canaries, whose grader only reports that it was asked."""

    oracle = None

    def __init__(self, canaries: int = 0):
        self.run = SimpleNamespace(cfg=SimpleNamespace(judge=SimpleNamespace(canaries=canaries)))

    @property
    def roles(self):
        raise Graded


def pool(place, *num_criteria: int) -> list[Table]:
    """Rubrics of batches, with these numbers of criteria."""
    return [
        publish(
            place,
            "rubrics",
            *(row("rubrics", criterion_id=f"c{b}-{i}") for i in range(n)),
            label=f"b{b}",
        )
        for b, n in enumerate(num_criteria)
    ]


@pytest.mark.parametrize("num_criteria", [(2,), (0, 2), (2, 0)])
def test_canaries_are_graded_where_any_batch_has_a_rubric(place, num_criteria):
    with pytest.raises(Graded):
        watch_canaries(Watched(canaries=4), place, (), pool(place, *num_criteria))  # type: ignore[arg-type]


@pytest.mark.parametrize(("canaries", "num_criteria"), [(0, (2,)), (4, (0, 0)), (4, ())])
def test_without_canaries_or_rubrics_nobody_is_asked(place, canaries, num_criteria):
    watch_canaries(Watched(canaries), place, (), pool(place, *num_criteria))  # type: ignore[arg-type]


def test_without_an_oracle_there_is_no_gap_to_watch(place):
    watch_gap(Watched(), place, publish(place, "judgments", row("judgments", verdict=1, oracle=0)))  # type: ignore[arg-type]
