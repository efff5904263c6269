"""`selfplay fork` forks after a complete iteration, and says how to continue."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command import fork as command
from flows.runtime.record import REQUEST, last_request
from flows.runtime.request import Request
from tasks.stage import Rows, stage
from tests.support.rows import row
from warehouse.freshness import NEVER_MADE
from warehouse.rerun import Inquiry
from warehouse.schemas import SAMPLES
from warehouse.store import Store


@stage(SAMPLES)
def draw() -> Rows:
    yield row("samples")


def name(t: int, b: int) -> str:
    return f"r/iter-{t:03d}/solver/step-{b:03d}/samples"


PLACES = [(t, b) for t in (1, 2) for b in (1, 2)]
FRESH: list[tuple[str, str | None]] = [(name(t, b), None) for t, b in PLACES]


@pytest.mark.parametrize(
    ("inquiry", "said"),
    [
        (Inquiry(FRESH), None),
        (Inquiry([*FRESH[:3], (name(2, 2), NEVER_MADE)]), None),
        (Inquiry([*FRESH[:1], (name(1, 2), NEVER_MADE)]), f"{name(1, 2)} was never made"),
        (Inquiry(FRESH[:2], stopped="an alarm"), "an alarm"),
    ],
)
def test_an_iteration_that_is_not_complete_is_not_forked(
    store: Store, monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry, said: str | None
) -> None:
    for t, b in PLACES:
        draw(store.run("r").iteration(t).phase("solver").step(b))
    asked = Request(
        flow="scope-iteration",
        profile="micro",
        run="r",
        overrides={"seed": 3, "models.base": "a b 😀"},
    )
    store.keep("r", REQUEST, asked.model_dump(mode="json"))
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    monkeypatch.setattr(command, "inquire", lambda asked: inquiry)
    result = CliRunner().invoke(cli.main, ["fork", "r", "g", "--from", "1"])
    again = (
        "selfplay run scope-iteration --profile micro --run {} --set seed=3 --set 'models.base=\"a"
        " b 😀\"'"
    )
    if said is None:
        assert "g shares 2 tables" in result.output and again.format("g") in result.output
        assert (
            "forked from r after iteration 1"
            in CliRunner().invoke(cli.main, ["status", "g"]).output
        )
        assert last_request(store, "g") == asked.model_copy(update={"run": "g"})
    else:
        assert result.exit_code == 1 and not store.folder("g").exists()
        assert (
            f"iteration 1 of 'r' is incomplete: {said}. First: {again.format('r')}" in result.output
        )
