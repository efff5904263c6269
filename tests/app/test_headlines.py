"""The table of headline claims, made from the tables of all studies."""

import json

from flows.app import claims
from flows.app.headlines import METHODS, headlines

EVIDENCE = "the evidence reward raises the score over outcome-only GRPO"


def test_every_method_of_the_papers_has_headline_claims_in_the_papers_order(tmp_path):
    rows = headlines(tmp_path)
    assert list(dict.fromkeys(row["method"] for row in rows)) == list(METHODS.values())
    assert {row["verdict"] for row in rows} == {"not measured"}
    assert {row["mean [95%]"] for row in rows} == {"–"}


def test_a_headline_claim_is_read_from_the_table_of_its_study_alone(tmp_path):
    for study, mean in (("leading", "0.027 [0.001, 0.052]"), ("eapo", "0.000 [-0.029, 0.029]")):
        row = {"claim": EVIDENCE, "mean [95%]": mean, "verdict": "shown", "seeds": "5 of 8"}
        lines = [json.dumps(row), json.dumps({"variant": "whole"})]
        (tmp_path / f"{study}-claims.jsonl").write_text("\n".join(lines))
    [row] = [row for row in headlines(tmp_path) if row["claim"] == EVIDENCE]
    assert row == {
        "method": "EAPO",
        "claim": EVIDENCE,
        "study": "[leading](leading-claims.md)",
        "paper reports": "–",
        "number": "–",
        "mean [95%]": "0.027 [0.001, 0.052]",
        "seeds": "5 of 8",
        "verdict": "shown",
    }


def test_the_table_of_headline_claims_is_that_of_the_studies_tables(monkeypatch, tmp_path):
    committed = (claims.BENCH / "headlines.md").read_text(encoding="utf-8")
    for path in claims.BENCH.glob("*-claims.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(claims, "BENCH", tmp_path)
    claims.write_headlines()
    assert (tmp_path / "headlines.md").read_text(encoding="utf-8") == committed
