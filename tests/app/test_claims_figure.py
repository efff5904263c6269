"""The figure of all claims, from tables of claims."""

from __future__ import annotations

import json

import pytest

from flows.app.claims_figure import Effect, draw_claims, ends_beyond, read_effects


def claim(**changes):
    return {
        "claim": "it learns",
        "number": "gain over iteration 0",
        "threshold": "above 0.1",
        "mean [95%]": "0.375 [-1.213, 1.963]",
        "verdict": "cannot tell",
        **changes,
    }


def test_an_effect_is_a_row_of_a_table_of_claims():
    assert Effect.of(claim()) == Effect("it learns", 0.375, -1.213, 1.963, 0.1, "cannot tell")


@pytest.mark.parametrize(
    "row",
    [
        {"variant": "whole", "seeds": "3"},
        claim(number="tokens, without minus with"),
        claim(**{"mean [95%]": "0.375"}),
    ],
    ids=["of a variant", "another unit", "a single seed"],
)
def test_rows_without_an_interval_of_scores_are_left_out(row):
    assert Effect.of(row) is None


def test_an_interval_that_goes_beyond_the_figure_ends_in_an_arrowhead():
    def ends(low: float, high: float) -> list[tuple[float, str]]:
        return list(ends_beyond(Effect("it learns", 0.1, low, high, 0.0, "cannot tell")))

    assert ends(-1.2, 1.9) == [(-0.3, "<"), (0.6, ">")]
    assert ends(-0.3, 0.7) == [(0.6, ">")]
    assert ends(-0.3, 0.6) == []


def test_every_study_of_a_folder_with_an_effect_is_drawn(tmp_path):
    for name, rows in {
        "spice": [claim(), claim(verdict="shown"), {"variant": "whole"}],
        "scope": [claim(verdict="contradicted")],
        "toy": [{"variant": "whole"}],
    }.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}-claims.jsonl").write_text(lines)
    studies = read_effects(tmp_path)
    assert {name: len(effects) for name, effects in studies.items()} == {"scope": 1, "spice": 2}
    draw_claims(studies, tmp_path / "claims.png")
    assert (tmp_path / "claims.png").read_bytes().startswith(b"\x89PNG")
