"""Tables and the page of a paper's claims, from runs written row by row."""

import importlib
import json

import pytest

from flows import claims, profile
from flows.claims import Claim, Seed, Study, beats
from tests.support.rows import publish, row
from warehouse.store import Store

GAIN = Claim("it learns", "gain", ("whole",), lambda s: s.gain("whole"), lambda v: v >= 0.2)
STUDY = Study(
    method="toy",
    variants={"whole": {}, "no Memory": {"memory": 0}},
    claims=(GAIN, beats("whole", "no Memory", "memory helps")),
    metrics={"tokens": ("micro", "answer_tokens")},
)
SCORES = {  # held-out scores by variant and seed, iterations 0 and 1
    ("whole", 0): (0.25, 0.5),
    ("whole", 1): (0.25, 0.75),
    ("no Memory", 0): (0.25, 0.375),
    ("no Memory", 1): (0.25, 0.875),
}


@pytest.fixture
def seeds(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    monkeypatch.setattr(claims, "BENCH", tmp_path / "bench")
    for (variant, seed), scores in SCORES.items():
        for iteration, score in enumerate(scores):
            measured = {"score": score, "answer_tokens": 10.0 + iteration}
            rows = [row("evaluations", benchmark="micro", metric=m, score=v) for m, v in measured.items()]
            publish(store.run(STUDY.run_name(variant, seed)).iteration(iteration), "evaluations", *rows)
    return [Seed(STUDY, number) for number in (0, 1)]


def test_a_claim_shows_only_if_it_holds_in_every_seed(seeds):
    learns, helps = claims.judge_claims(STUDY, list(STUDY.variants), seeds)
    assert (learns["mean ± s.e."], learns["by seed"]) == ("0.375 ± 0.125", "0.250, 0.500")
    assert learns["shows in every seed"] == "yes"
    assert (helps["mean ± s.e."], helps["by seed"]) == ("0.000 ± 0.125", "0.125, -0.125")
    assert helps["shows in every seed"] == "no"


def test_a_claim_of_a_variant_that_was_not_played_is_not_judged(seeds):
    assert [judged["claim"] for judged in claims.judge_claims(STUDY, ["whole"], seeds)] == ["it learns"]


def test_variants_are_described_at_the_end_of_their_runs(seeds):
    whole, without = claims.describe_variants(STUDY, list(STUDY.variants), seeds)
    assert whole == {
        "variant": "whole",
        "before": "0.250 ± 0.000",
        "gain": "0.375 ± 0.125",
        "tokens": "11.000 ± 0.000",
    }
    assert without["gain"] == "0.375 ± 0.250"


def test_tables_lines_and_a_page_are_written(seeds, tmp_path):
    said = claims.report(STUDY, list(STUDY.variants), seeds)
    lines = (tmp_path / "bench" / "toy-claims.jsonl").read_text().splitlines()
    assert [json.loads(line).get("claim") for line in lines] == ["it learns", "memory helps", None, None]
    page = tmp_path / "store" / "reports" / "toy-claims.html"
    assert said.endswith(f"page: {page}")
    html = page.read_text()
    assert "micro: 0 of 1 end below whole" in html
    assert html.count("<svg") == 2
    assert "<td>memory helps</td>" in html


@pytest.mark.parametrize("name", claims.STUDIES)
def test_every_claim_of_a_study_is_about_its_variants_and_every_variant_is_a_configuration(name):
    study = importlib.import_module(f"flows.{name}.claims").STUDY
    config = importlib.import_module(f"flows.{study.method}.config").Config
    assert study.name == name
    for claim in study.claims:
        assert set(claim.needs) <= set(study.variants)
    whole = profile.load(config, study.profile, study.variants[study.whole])
    for variant, settings in study.variants.items():
        assert variant == study.whole or profile.load(config, study.profile, settings) != whole
