"""Tables and page of a paper's claims, from runs written row by row."""

import importlib
import json
import math
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.app import claims
from flows.app.study import FILES, STUDIES, Claim, Seed, Study, beats, raises
from flows.settings import profile
from tests.support.rows import publish, row
from warehouse.store import Store

STUDY = Study(
    num_seeds=3,
    name="toy",
    method="spice",
    variants={"whole": {}, "no Memory": {"steps": 1}},
    claims=(raises("whole", at_least=0.2), beats("whole", "no Memory", "memory helps")),
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
            rows = [
                row("evaluations", benchmark="micro", metric=m, score=v)
                for m, v in measured.items()
            ]
            publish(
                store.run(STUDY.run_name(variant, seed)).iteration(iteration), "evaluations", *rows
            )
    return {
        variant: {Seed(STUDY, number): claims.End() for number in (0, 1)}
        for variant in STUDY.variants
    }


def test_a_variant_that_no_run_can_be_named_after_is_refused_at_once():
    """Not after the hours that its other variants take."""
    with pytest.raises(ValueError, match="a run cannot be called 'toy-20%-wrong-0'"):
        replace(STUDY, variants={"whole": {}, "20% wrong": {"steps": 1}})


def test_a_study_is_played_on_a_gpu_if_asked_to(seeds, monkeypatch):
    played = []
    monkeypatch.setattr(claims, "next_stage", lambda asked: ("not begun", ""))
    monkeypatch.setattr(claims, "play", lambda asked, pool: played.append(asked.settings))
    claims.play_study(STUDY, ["whole"], [5], gpu=True)
    claims.play_study(STUDY, ["whole"], [5])
    assert [each.get("engine.device") for each in played] == ["cuda", None]


def test_parts_of_a_study_are_disjoint_and_complete(seeds, monkeypatch):
    played = []
    monkeypatch.setattr(claims, "next_stage", lambda asked: ("not begun", ""))
    monkeypatch.setattr(claims, "play", lambda asked, pool: played.append(asked.run))
    everything = list(STUDY.variants), [0, 1, 2]
    for part in ((1, 2), (2, 2)):
        claims.play_study(STUDY, *everything, part=part)
    first, second = played[:3], played[3:]
    assert not set(first) & set(second)
    claims.play_study(STUDY, *everything)
    assert sorted(first + second) == sorted(played[6:])


def test_a_claim_is_shown_only_if_the_whole_interval_is_beyond_its_threshold(seeds):
    """Student's t for two seeds is 12.706: the gains 0.25 and 0.5 have a mean of 0.375 ± 1.588, so
    two seeds cannot tell, although both gain more than the threshold of 0.2."""
    learns, helps = claims.judge_claims(STUDY, seeds)
    assert (learns["mean [95%]"], learns["by seed"]) == ("0.375 [-1.213, 1.963]", "0.250, 0.500")
    assert (learns["verdict"], learns["smallest visible"]) == ("cannot tell", "1.588")
    assert (helps["mean [95%]"], helps["by seed"]) == ("0.000 [-1.588, 1.588]", "0.125, -0.125")
    assert helps["verdict"] == "cannot tell"


def test_equal_gains_of_all_seeds_show_a_claim_or_contradict_it():
    """In eight seeds with a standard deviation of 0.01, half of the interval is
    2.365 x 0.01 / sqrt(8) = 0.0084 wide."""
    values = [0.1 + 0.01 * z for z in (-1.0, 1.0, -1.0, 1.0, -0.5, 0.5, -1.12, 1.12)]
    learns = raises("whole", at_least=0.09)
    assert learns.judge(values).says == "shown"
    assert learns.judge([value - 0.02 for value in values]).says == "contradicted"
    assert learns.judge([value - 0.008 for value in values]).says == "cannot tell"
    assert learns.judge(values).smallest_visible == pytest.approx(0.0084, abs=0.0005)


def test_a_claim_that_something_happens_needs_six_seeds_of_six():
    """The lower bound for n seeds of n is 0.025 ** (1 / n): 0.478 for five, 0.541 for six."""
    caught = Claim("it is caught", "caught", "", {}, at_least=0.5, is_share=True)
    assert caught.judge([1.0] * 5).says == "cannot tell"
    assert caught.judge([1.0] * 6).says == "shown"
    assert caught.judge([0.0] * 6).says == "contradicted"


def test_a_row_of_too_few_seeds_says_so(seeds):
    fewer = {"whole": seeds["whole"], "no Memory": {Seed(STUDY, 1): claims.End()}}
    learns, helps = claims.judge_claims(STUDY, fewer)
    assert learns["seeds"] == "2 of 3"
    assert (helps["seeds"], helps["by seed"], helps["verdict"], helps["smallest visible"]) == (
        "1 of 3",
        "-0.125",
        "cannot tell",
        "–",
    )
    assert [row["seeds"] for row in claims.describe_variants(STUDY, fewer)] == ["2 of 3", "1 of 3"]


def test_claims_of_the_paper_come_first_with_what_the_paper_reports(seeds):
    helps = beats(
        "whole",
        "no Memory",
        "memory helps",
        kind="claim",
        source="table 2",
        reported="-2.9 points",
        seeds=12,
    )
    study = replace(STUDY, claims=(STUDY.claims[0], helps))
    first, second = claims.judge_claims(study, seeds)
    assert (first["paper"], first["paper reports"], first["kind"]) == (
        "table 2",
        "-2.9 points",
        "claim",
    )
    assert (first["seeds"], second["seeds"], second["kind"]) == ("2 of 12", "2 of 3", "check")
    assert study.seeds("no Memory") == range(12), "as many as the claim needs"


def test_a_variant_can_be_compared_by_its_learning_curve(seeds):
    """Whole scores 0.5 after the only iteration, the variant 0.375."""
    curve = beats("whole", "no Memory", "memory helps", by="curve")
    assert curve.number == "mean score over iterations, whole minus no Memory"
    assert Seed(STUDY, 0).value(curve) == pytest.approx(0.125)


def test_the_table_says_how_many_rows_would_be_shown_by_chance(seeds):
    rows = [{"verdict": "shown"}, *[{"verdict": "cannot tell"}] * 39]
    assert claims.chance(rows) == (
        "1 of 40 claims have the verdict *shown*. If no effect were real, 1.0 would be expected by"
        " chance."
    )


def test_a_run_that_an_alarm_stopped_is_marked_wherever_its_numbers_are(seeds):
    seeds["no Memory"][Seed(STUDY, 1)] = claims.End("reference_error is 0.9, the limit is 0.3")
    learns, helps = claims.judge_claims(STUDY, seeds)
    assert (learns["by seed"], helps["by seed"]) == ("0.250, 0.500", "0.125, -0.125 (stopped)")
    assert [row["stopped by an alarm"] for row in claims.describe_variants(STUDY, seeds)] == [0, 1]


def test_a_claim_of_a_variant_that_was_not_played_is_not_judged(seeds):
    assert [
        judged["claim"] for judged in claims.judge_claims(STUDY, {"whole": seeds["whole"]})
    ] == ["self-play raises the held-out score"]


def test_variants_are_described_at_the_end_of_their_runs(seeds):
    whole, without = claims.describe_variants(STUDY, seeds)
    assert whole == {
        "variant": "whole",
        "seeds": "2 of 3",
        "before": "0.250 [0.250, 0.250]",
        "gain": "0.375 [-1.213, 1.963]",
        "tokens": "11.000 [11.000, 11.000]",
    }
    assert without["gain"] == "0.375 [-2.802, 3.552]"


def test_what_a_monitor_measures_at_every_step_is_averaged_over_an_iteration(seeds, tmp_path):
    """0.5 and 0.25 in the last iteration of seed 0, 0.125 in that of seed 1."""
    for seed, errors in enumerate([(0.5, 0.25), (0.125,)]):
        iteration = Store(tmp_path / "store").run(STUDY.run_name("whole", seed)).iteration(1)
        for step, error in enumerate(errors, start=1):
            measured = row(
                "evaluations", benchmark="judge monitor", metric="mark_error", score=error
            )
            publish(iteration.phase("policy").step(step), "evaluations", measured, label="truth")
    study = replace(STUDY, metrics={"wrong marks": ("judge monitor", "mark_error")})
    assert (
        claims.describe_variants(study, {"whole": seeds["whole"]})[0]["wrong marks"]
        == "0.250 [-1.338, 1.838]"
    )


def test_tables_lines_and_a_page_are_written(seeds, tmp_path):
    said = claims.report(STUDY, seeds)
    lines = (tmp_path / "bench" / "toy-claims.jsonl").read_text().splitlines()
    assert [json.loads(line).get("claim") for line in lines] == [
        "self-play raises the held-out score", "memory helps", None, None
    ]  # fmt: skip
    page = tmp_path / "store" / "reports" / "toy-claims.html"
    assert said.endswith(f"page: {page}")
    html = page.read_text()
    assert "micro: 0 of 1 end below whole" in html
    assert html.count("<svg") == 2
    assert "<td>memory helps</td>" in html


def test_rows_of_runs_that_were_not_kept_stay_until_their_variants_are_played(seeds, tmp_path):
    extended = replace(
        STUDY,
        variants={**STUDY.variants, "late": {}},
        claims=(*STUDY.claims, beats("whole", "late", "being late costs")),
    )
    late = {
        "claim": "being late costs",
        "seeds": "3",
        "kind": "check",
        "number": "final score, whole minus late",
        "threshold": "above 0",
        "verdict": "shown",
    }
    others = [
        {"claim": "memory helps", "seeds": "3"},
        {"claim": "a claim of an earlier study", "seeds": "3"},
        {"variant": "late", "seeds": "3"},
    ]
    table = tmp_path / "bench" / "toy-claims.jsonl"
    table.parent.mkdir()
    table.write_text("".join(json.dumps(row) + "\n" for row in [late, *others]))
    for _ in range(2):  # the mark is set once
        claims.report(extended, seeds)
        rows = [json.loads(line) for line in table.open()]
        assert [(row.get("claim", row.get("variant")), row["seeds"]) for row in rows] == [
            ("self-play raises the held-out score", "2 of 3"),
            ("memory helps", "2 of 3"),
            ("being late costs", "3, not kept"),
            ("whole", "2 of 3"),
            ("no Memory", "2 of 3"),
            ("late", "3, not kept"),
        ]
    late["threshold"] = "above 0.1"
    table.write_text("".join(json.dumps(row) + "\n" for row in [late, *others]))
    claims.report(extended, seeds)
    assert "being late costs" not in table.read_text()


def test_the_page_begins_with_the_benchmark_that_most_variants_have(seeds, tmp_path):
    for iteration in (0, 1):
        place = Store(tmp_path / "store").run("toy-whole-0").iteration(iteration)
        publish(
            place,
            "evaluations",
            row("evaluations", benchmark="a probe", metric="score", score=0.5),
            label="probe",
        )
    claims.report(STUDY, seeds)
    html = (tmp_path / "store" / "reports" / "toy-claims.html").read_text()
    assert html.index("micro: best") < html.index("a probe: whole went")


@pytest.mark.parametrize(("asked", "listed"), [([], set(STUDIES)), (["spice"], {"spice"})])
def test_list_shows_the_studies_asked_for_or_all_and_plays_nothing(
    asked, listed, tmp_path, monkeypatch
):
    shown = []
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(sys, "argv", ["claims", *asked, "--list"])
    monkeypatch.setattr(claims, "print_table", shown.extend)
    claims.main()
    assert {row["study"] for row in shown} == listed
    assert not list((tmp_path / "store").rglob("*.parquet"))


def test_a_study_that_does_not_exist_is_refused_with_the_names_of_those_that_do(
    monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["claims", "scpe"])
    with pytest.raises(SystemExit):
        claims.main()
    assert f"there is no study scpe; there are {', '.join(STUDIES)}" in capsys.readouterr().err


@pytest.mark.parametrize("way", [["--list"], []])
def test_a_variant_that_any_of_the_studies_lacks_is_refused_before_one_is_played(
    way, monkeypatch, capsys
):
    monkeypatch.setattr(
        sys, "argv", ["claims", "spice", "mae", *way, "--variants", "Challenger fixed"]
    )
    monkeypatch.setattr(claims, "play_study", lambda *of: pytest.fail("played"))
    with pytest.raises(SystemExit):
        claims.main()
    assert "mae has no variant Challenger fixed; there are whole, SFT" in capsys.readouterr().err


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_of_a_study_is_about_its_variants_and_every_variant_is_a_configuration(name):
    study = Study.load(name)
    config = importlib.import_module(f"flows.{study.method}.config").Config
    assert study.name == name
    for claim in study.claims:
        assert set(claim.runs.values()) <= set(study.variants)
    whole = profile.load(config, study.profile, study.variants[study.whole])
    for variant, settings in study.variants.items():
        assert (
            variant == study.whole
            or profile.load(config, study.profile_of(variant), settings) != whole
        )


def test_every_method_has_a_study():
    methods = {path.parent.name for path in Path("flows").glob("*/rewards.py")}
    assert methods <= set(STUDIES)


def test_a_threshold_was_set_before_the_runs_if_it_was_written_down_then_and_is_the_same_now(
    seeds, monkeypatch
):
    """The runs of the fixture began at 0, so nothing was written down before them."""
    learns, helps = claims.judge_claims(STUDY, seeds)
    assert (learns["threshold"], helps["threshold"]) == ("above 0.2", "above 0")
    assert (learns["set before"], helps["set before"]) == ("no", "no")
    before = {claim.says: {"threshold": "above 0", "at": -1.0} for claim in STUDY.claims}
    monkeypatch.setattr(claims, "write_down", lambda study: before)
    judged = claims.judge_claims(STUDY, seeds)
    # the first was above 0 then, is at least 0.2 now
    assert [row["set before"] for row in judged] == ["no", "yes"]


def test_what_was_written_down_first_stays(seeds):
    first = claims.write_down(STUDY)[STUDY.claims[0].says]
    other = replace(STUDY, claims=(raises("whole", at_least=0.3),))
    assert claims.write_down(other)[STUDY.claims[0].says] == first
    assert first["threshold"] == "above 0.2"


@pytest.fixture
def played(monkeypatch):
    """The requests that `claims` plays; a run is finished once it was played, and before only
    "whole" with seed 2."""
    found = []
    study = replace(STUDY, profiles={"no Memory": "another"}, seedless=("no Memory",))

    def next_stage(asked):
        if asked.run in {"toy-whole-2", *(request.run for request in found)}:
            return None, ""
        return "not begun" if asked.run == "toy-whole-0" else "iter-001/rewards: never made", ""

    monkeypatch.setattr(claims.Study, "load", lambda name: study)
    monkeypatch.setattr(
        claims,
        "find_method",
        lambda name: SimpleNamespace(name=name, run=lambda asked, pool: found.append(asked)),
    )
    monkeypatch.setattr(claims, "next_stage", next_stage)
    return found


def test_a_study_is_reported_after_each_variant_with_all_that_is_finished(
    seeds, played, monkeypatch
):
    """A variant may have a profile of its own, and one that no seed changes is played once. A run
    that is finished is looked at once."""
    told = []
    looked_at = Counter()
    next_stage = claims.next_stage
    monkeypatch.setattr(
        claims, "next_stage", lambda asked: looked_at.update([asked.run]) or next_stage(asked)
    )
    monkeypatch.setattr(
        claims,
        "report",
        lambda study, runs: told.append({v: [s.number for s in of] for v, of in runs.items()}),
    )
    monkeypatch.setattr(sys, "argv", ["claims", "scope", "--seeds", "0", "1"])
    claims.main()
    assert [(asked.run, asked.profile) for asked in played] == [
        ("toy-whole-0", "micro"),
        ("toy-whole-1", "micro"),
        ("toy-no-memory-0", "another"),
    ]
    assert told == [{"whole": [0, 1, 2]}, {"whole": [0, 1, 2], "no Memory": [0, 1, 2]}]
    assert [looked_at[f"toy-whole-{n}"] for n in range(3)] == [1, 1, 1]


def test_kept_runs_that_are_played_again_are_looked_at_again(seeds, played, monkeypatch):
    """After the first variant the second is known by what the file kept of it."""
    kept = SimpleNamespace(stopped="")
    monkeypatch.setattr(
        claims.KeptRuns, "load", lambda path: SimpleNamespace(get=lambda asked: kept)
    )
    in_store = []
    monkeypatch.setattr(
        claims,
        "report",
        lambda study, runs: in_store.append([end.in_store for end in runs["no Memory"].values()]),
    )
    monkeypatch.setattr(sys, "argv", ["claims", "scope", "--seeds", "0", "1", "--again"])
    claims.main()
    assert in_store == [[False] * 3, [True] * 3]


def test_what_is_left_is_listed_and_nothing_is_played(seeds, played, monkeypatch, capsys):
    """The finished run took two minutes, and so may the others."""
    monkeypatch.setattr(claims, "seconds", lambda run: 120.0 if run == "toy-whole-2" else 0.0)
    whole, without = claims.progress(claims.Study.load("toy"))
    left = "0: not begun; 1: iter-001/rewards: never made"
    assert whole == {
        "study": "toy",
        "variant": "whole",
        "finished seeds": "2",
        "left": left,
        "minutes left": 4,
    }
    assert (without["finished seeds"], without["minutes left"]) == ("", 2)
    monkeypatch.setattr(sys, "argv", ["claims", "scope", "--list"])
    claims.main()
    assert "not begun" in capsys.readouterr().out and not played


def test_a_run_that_was_never_begun_has_no_next_stage_to_look_for(seeds):
    assert claims.next_stage(claims.request(Study.load("mae"), "SFT", 0)) == ("not begun", "")


def test_claims_of_scope_are_numbers_of_its_runs(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    study = Study.load("scope")
    held_out = {
        "co-evolving": (0.25, 0.5, 0.625, 0.875),
        "frozen Challenger": (0.25, 0.5, 0.5, 0.625),
        "no quality gates": (0.25, 0.5, 0.5, 0.75),
        "no length penalty": (0.25, 0.5, 0.5, 0.5),
        "GRPO_data": (0.25, 0.5, 0.75, 0.75),
        "GRPO_data 0.1 wrong": (0.25, 0.5, 0.75, 0.625),
        "GRPO_data 0.2 wrong": (0.25, 0.5, 0.5, 0.5),
        "GRPO_data 0.3 wrong": (0.25, 0.25, 0.25, 0.25),
        "hackable judge": (0.25, 0.375),  # was stopped, and did not fall
    }
    for variant, scores in held_out.items():
        for iteration, score in enumerate(scores):
            tokens = 20.0 if variant == "no length penalty" else 12.0
            rows = [row("evaluations", benchmark="micro", metric="score", score=score)]
            rows += [row("evaluations", benchmark="micro", metric="answer_tokens", score=tokens)]
            publish(
                store.run(study.run_name(variant, 0)).iteration(iteration), "evaluations", *rows
            )
    # mean scores of candidates by iteration; in the window are 1 and 2 of the last two
    candidates = {
        "frozen Challenger": {1: (0.25, 0.5), 2: (0.5, 1.0)},
        "co-evolving": {1: (0.25, 0.25), 2: (0.25, 0.75)},
    }
    for variant, by_iteration in candidates.items():
        run = store.run(study.run_name(variant, 0))
        for iteration, means in by_iteration.items():
            rows = [
                row("selections", task_id=f"{iteration}-{n}", mean_score=mean, kept=True)
                for n, mean in enumerate(means)
            ]
            publish(run.iteration(iteration).phase("pool").step(1), "selections", *rows)
            # the Solver's answers to what was kept score half as much
            rows = [
                row("rewards", task_id=f"{iteration}-{n}", score=s / 2) for n, s in enumerate(means)
            ]
            publish(run.iteration(iteration).phase("solver").step(1), "rewards", *rows)
    for variant, texts in (
        ("no quality gates", ("about towns like X", "Y")),
        ("co-evolving", ("Y",) * 7),
    ):
        rows = [
            row("tasks", task_id=str(i), text=text)
            for i, text in enumerate((*texts, "about places near Z"))
        ]
        publish(
            store.run(study.run_name(variant, 0)).iteration(1).phase("pool").step(1), "tasks", *rows
        )
    values = [Seed(study, 0).value(claim) for claim in study.claims]
    leads = [0.25, 0.125, 0.375, 0.125, 0.25, 0.375, 0.625]
    drift = [0.125, -0.5]
    assert values == pytest.approx([0.625, *leads, *drift, (2 / 3) / (1 / 8), 8.0, 1.0])


@pytest.mark.parametrize("name", FILES)
def test_the_effect_of_a_claim_is_the_number_that_is_reported(name):
    """ "+2.6 points" is 0.026; "0.71 against 0.48" and "55 to 35%" are differences."""
    for claim in Study.load(name).claims:
        if claim.effect is None:
            continue
        first, *others = map(float, re.findall(r"\d+(?:\.\d+)?", claim.reported))
        possible = [first / 100]
        if others:
            possible += [abs(others[0] - first), abs(others[0] - first) / 100]
        assert any(abs(claim.effect) == pytest.approx(value, abs=1e-4) for value in possible)


def test_a_claim_without_rows_is_not_a_number_and_does_not_hold(seeds):
    learns = STUDY.claims[0]
    assert math.isnan(Seed(STUDY, 2).value(learns))
    assert learns.judge([math.nan, 0.5]).says == "cannot tell"


def test_a_report_reads_the_store_once_and_not_for_every_number(seeds, monkeypatch):
    monkeypatch.setattr(
        "flows.app.study.query", lambda *_: pytest.fail("read the store for one number")
    )
    text = claims.report(STUDY, seeds)
    assert "| 2 of 3 | 0.375 [-1.213, 1.963] | 0.250, 0.500 | cannot tell |" in text
    before = "0.250 [0.250, 0.250]"
    gain = "0.375 [-1.213, 1.963]"
    tokens = "11.000 [11.000, 11.000]"
    assert f"| whole | 2 of 3 | {before} | {gain} | {tokens} |" in text
