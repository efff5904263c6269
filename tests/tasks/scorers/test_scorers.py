"""Scorers of answers, compared with other implementations of the same metric and with cases
worked by hand."""

import json
import random
from pathlib import Path

import pytest

from tasks.scorers import SCORERS, short
from tasks.scorers.tables import exact_match_and_f1

WORDS = [
    "the",
    "a",
    "an",
    "Nile",
    "of",
    "white-blue",
    "U.S.",
    "1,250.5",
    "(twice)",
    "don't",
    "“Ann”",
    "Ünal",
    ";",
    "...",
]


def item(*references: str, **given) -> dict:
    return {
        "task_id": "t",
        "references": list(references),
        "options": None,
        "given": json.dumps({}),
        **given,
    }


def scored(scorer: str, answer: str, *references: str, **given) -> dict[str, float]:
    return SCORERS[scorer].score(item(*references, **given), answer)


@pytest.mark.needs("torch")
def test_exact_match_and_f1_are_those_of_squad_as_transformers_has_them():
    metrics = pytest.importorskip("transformers.data.metrics.squad_metrics")
    rng = random.Random(0)
    for _ in range(3000):
        answer, reference = (" ".join(rng.choices(WORDS, k=rng.randint(0, 6))) for _ in range(2))
        assert short.normalised(answer) == metrics.normalize_answer(answer)
        found = scored("short", answer, reference)
        assert found["em"] == metrics.compute_exact(reference, answer)
        assert found["f1"] == pytest.approx(metrics.compute_f1(reference, answer))


def test_the_best_of_several_accepted_answers_counts():
    assert scored("short", "In December 1972", "14 December 1972 UTC", "December 1972") == {
        "em": 0.0,
        "f1": pytest.approx(0.8),
        "cover": 1.0,
    }


def test_an_answer_that_lists_everything_does_not_cover_the_reference():
    assert scored("short", "It was Paris", "Paris")["cover"] == 1
    assert scored("short", " ".join(["Rome"] * 40) + " Paris", "Paris")["cover"] == 0
    assert scored("short", "I do not know", "no")["cover"] == 0


def test_mathematics_is_compared_by_value():
    assert scored("mathematics", "1,200", "1200") == {"accuracy": 1.0}
    assert scored("mathematics", r"\dfrac{5}{6}", r"\frac56") == {"accuracy": 1.0}
    assert scored("mathematics", "13", "12") == {"accuracy": 0.0}


def test_a_number_may_differ_by_so_much():
    assert scored("number", "1251", "1250") == {"accuracy": 1.0}
    assert scored("number", "1253", "1250") == {"accuracy": 0.0}


@pytest.mark.parametrize(
    ("answer", "accuracy", "strict"),
    [
        ("12.51", 1.0, 1.0),  # 12.5 * 1.0015 is 12.51875
        ("12.52", 0.0, 0.0),
        ("1,250", 1.0, 0.0),  # a hundred times
        ("1,251", 1.0, 0.0),  # and within 0.15 %
        ("125.1", 0.0, 0.0),  # ten times must be exact
        ("125", 1.0, 0.0),
        ("-12.5", 1.0, 0.0),
        ("-12.51", 0.0, 0.0),
    ],
)
def test_a_number_of_a_report_is_scored_by_its_benchmarks_own_rule_and_by_ours(
    answer, accuracy, strict
):
    assert scored("docmath", answer, "12.5") == {"accuracy": accuracy, "strict": strict}


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("J", 1),
        ("(J)", 1),
        ("J) jot", 1),
        ("The answer is J.", 1),
        ("jot", 1),
        ("A", 0),
        ("K", 0),
        ("Jot of it", 0),
    ],
)
def test_a_choice_is_its_letter_or_its_text_among_ten(answer, right):
    options = [f"o{i}" for i in range(9)] + ["jot"]
    assert scored("choice", answer, "J", options=options) == {"accuracy": right}


# What the released tatqa_metric.py says of predictions like those in its repository (scale beside
# them, or in them).
TATQA = [
    (["the modified method"], "", "span", ["Modified method"], "", (1.0, 1.0)),
    # 2017.0000 there
    (["2018", "2017"], "", "multi-span", ["Fiscal Year 2017", "Fiscal Year 2018"], "", (0.0, 0.0)),
    (["1,452.4"], "million", "span", ["$1,452.4"], "million", (1.0, 1.0)),
    (["1,452.4"], "million", "span", ["1452.4 million"], "", (1.0, 1.0)),
    (["1,452.4"], "million", "span", ["1452.4"], "", (0.0, 0.0)),
    (-0.2, "percent", "arithmetic", ["-0.2%"], "", (1.0, 1.0)),
    (23.42, "percent", "arithmetic", ["0.2342"], "", (1.0, 1.0)),
    (12.5, "", "arithmetic", ["12.4"], "", (0.0, 0.0)),
    (3, "", "count", ["3"], "", (1.0, 1.0)),
    (["granted 547,000"], "", "span", ["547,000 shares"], "", (0.0, 0.5)),
    (["(134.12)"], "", "span", ["-134.12"], "", (1.0, 1.0)),
]


@pytest.mark.parametrize(("answer", "scale", "kind", "said", "said_scale", "verdict"), TATQA)
def test_tables_are_scored_as_tatqa_scores_them(answer, scale, kind, said, said_scale, verdict):
    assert exact_match_and_f1(answer, scale, kind, said, said_scale) == verdict


def test_spans_of_an_answer_are_separated_by_semicolons():
    given = json.dumps({"answer": ["Ann", "Bea"], "scale": "", "answer_type": "multi-span"})
    assert scored("tatqa", "Bea; Ann", given=given) == {"em": 1.0, "f1": 1.0}
    assert scored("tatqa", "Ann", given=given) == {"em": 0.0, "f1": 0.67}


def test_mathematics_gives_the_verdicts_that_gsm8ks_authors_published_of_four_models():
    lines = (Path(__file__).parents[2] / "data" / "gsm8k_verdicts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 130 and any(
        row["is_correct"] and row["answer"] != row["reference"] for row in rows
    )
    wrong = [row for row in rows if row["answer"] is None and row["is_correct"]]
    for row in rows:
        if row["answer"] is not None:
            accuracy = scored("mathematics", row["answer"], row["reference"])["accuracy"]
            wrong += [row] if accuracy != row["is_correct"] else []
    assert wrong == []


# Predictions for EfficientQA's test questions (CC BY-SA 3.0) with the verdicts of human judges
# (arXiv 2101.00133).
JUDGED = [
    (["6 geese a-laying", "maids a-milking"], "six geese a-laying", "right"),
    (["6 geese a-laying", "maids a-milking"], "epiphany", "wrong"),
    (["Nine"], "none", "wrong"),
    (["Amma"], "chucky", "wrong"),
]


@pytest.mark.parametrize(("accepted", "prediction", "verdict"), JUDGED)
def test_exact_match_misses_right_answers_and_takes_no_wrong_one(accepted, prediction, verdict):
    assert scored("short", prediction, *accepted)["em"] == 0
    with_verdict = [*accepted, prediction] if verdict == "right" else accepted
    assert scored("short", prediction, *with_verdict)["em"] == (verdict == "right")
