"""The axes of a report's figures."""

import re

import pytest

from tasks.reports.draw import Colours
from tasks.reports.learning import held_out, held_out_parts, held_out_tiles, metric_rows, updates
from tasks.reports.measures import also_measured, judge_monitor
from tasks.reports.types import disagreements, kept_by_type


def texts(svg: str | None) -> dict[str, float]:
    """Every text of a figure and its position, in points from the left."""
    return {
        text: float(x)
        for x, text in re.findall(r'<text [^>]*x="([\d.]+)"[^>]*>([^<]*)</text>', svg or "")
    }


@pytest.mark.parametrize("plot", [kept_by_type, disagreements])
def test_figures_by_type_have_whole_iterations(plot):
    counts = {"num_kept": 3, "n": 10, "num_votes_only": 1, "num_rule_only": 2}
    steps = [{"iteration": 1, "phase": "train", "step": k, **counts} for k in (1, 2)]
    figure = plot([{**step, "task_type": name} for step in steps for name in ("essay", "quiz")])
    ticks = [text for text in texts(figure.svg) if re.fullmatch(r"-?\d+(\.\d+)?", text)]
    assert {"0", "1"} <= set(ticks)
    assert [tick for tick in ticks if "." in tick and float(tick) < 2] == []


def test_a_power_of_ten_stands_apart_from_the_title_of_its_panel():
    about = {"metric": "clip_fraction", "iteration": 1, "optimizer_step": 0, "role": "writer"}
    figure = updates([{**about, "step": k, "value": k / 10_000} for k in (1, 2)], Colours())
    at = texts(figure.svg)
    assert at["1e−4"] > at["share of clipped tokens"] + 100


def test_a_point_shows_its_value_and_a_step_leads_to_its_update():
    about = {"iteration": 1, "optimizer_step": 0, "role": "<writer>", "phase": "train"}
    steps = [{**about, "step": k, "metrics": {"kl": k / 8, "loss": None}} for k in (1, 2)]
    svg = updates(metric_rows(steps), Colours(), "/run/r").svg or ""
    says = "<title>0.25\n&lt;writer&gt;, iteration 1, step 2</title>"
    assert (
        '<a href="/run/r/update?iteration=1&amp;phase=train&amp;step=2" tabindex="-1"><circle'
        in svg
    )
    assert svg.count("<title>") == 2 and says in svg
    [score] = measured("exam", "score", 0.5)
    figure = held_out([{**score, "standard_error": 0.03}], Colours())
    assert "<title>0.5 ± 0.03\nexam, iteration 0</title>" in (figure.svg or "")


def measured(benchmark, metric, *scores):
    return [
        {
            "benchmark": benchmark,
            "metric": metric,
            "iteration": t,
            "score": s,
            "is_held_out": not benchmark.endswith((" monitor", " probe")),
        }
        for t, s in enumerate(scores)
    ]


def test_shares_besides_the_score_are_drawn_those_that_changed_most_first():
    rows = [*measured("exam", "score", 0.1, 0.9), *measured("exam", "score_hard", 0.1, 0.9)]
    rows += [*measured("exam", "recall", 0.5, 0.75), *measured("exam", "answer_tokens", 20.0, 30.0)]
    rows += [
        *measured("choice", "best_of_n", 0.75, 0.25),
        *measured("batch monitor", "reward", 0.2, 0.3),
    ]
    figure = also_measured(
        [*rows, *measured("exam", "once", 0.5), *measured("exam", "never", 0.0, 0.0)]
    )
    assert figure.title == "Also measured: choice: best of n 0.75 → 0.25; exam: recall 0.50 → 0.75"
    assert {text for text in texts(figure.svg) if ":" in text} == {
        "exam: recall",
        "choice: best of n",
    }
    assert also_measured(measured("exam", "score", 0.1, 0.9)).svg is None


def test_every_line_is_in_the_legend_however_long_its_name():
    metrics = [
        "difficulty_general_qa",
        "difficulty_multiple_choice",
        *(f"of_the_hardest_tasks_of_this_kind_{i}" for i in (1, 2)),
    ]
    rows = [
        row
        for metric in metrics
        for row in measured("questions of the iteration", metric, 0.5, 0.25)
    ]
    svg = also_measured([*rows, *measured("exam", "recall", 0.5, 0.75)]).svg or ""
    names = re.findall(r">(questions of the iteration: [^<]*|exam: [^<]*)<", svg)
    assert len(names) == 5
    assert "questions of the iteration: difficulty multiple choice" in names


def test_the_score_under_another_name_is_not_drawn_again():
    rows = [*measured("exam", "score", 0.1, 0.9), *measured("exam", "judged", 0.1, 0.9)]
    assert also_measured(rows).svg is None
    rows += [*measured("exam", "accuracy", 0.2, 0.9), *measured("quiz", "score", 0.2, 0.9)]
    assert also_measured(rows).title == "Also measured: accuracy 0.20 → 0.90"


def test_scores_that_are_not_held_out_are_drawn_among_what_was_also_measured():
    rows = [*measured("exam", "score", 0.25, 0.5), *measured("b probe", "score", 0.5, 0.25)]
    assert also_measured(rows).title == "Also measured: score 0.50 → 0.25"
    assert [
        name for name, _, _ in held_out_tiles([{**r, "standard_error": None} for r in rows])
    ] == ["held-out score, exam"]


def test_errors_of_marks_are_drawn_where_a_judge_is_monitored():
    rows = [*measured("exam", "recall", 0.5), *measured("judge monitor", "mark_error", 0.02, 0.2)]
    assert judge_monitor(rows).title == "Judge's marks: mark error 0.02 → 0.20"
    assert judge_monitor(rows[:1]).svg is None


def test_of_many_benchmarks_the_title_says_the_ends_and_parts_name_their_benchmark():
    rows = [
        row
        for name in ("exam", "exam, direct", "needles")
        for row in measured(name, "score", 0.25, 0.5)
    ]
    kinds = {
        "exam": ("hard", "easy"),
        "quiz": ("hard", "easy"),
        "lone": ("hard",),
        "needles": ("hard", "easy"),
    }
    parts = [(name, f"score_{kind}") for name, found in kinds.items() for kind in found]
    rows += [row for part in parts for row in measured(*part, 0.1, 0.3)]
    rows = [{**row, "standard_error": None} for row in rows]
    assert (
        held_out(rows, Colours()).title
        == "Held-out scores: exam 0.25 → 0.50; exam, direct 0.25 → 0.50; needles 0.25 → 0.50"
    )
    named = texts(held_out_parts(rows, Colours()).svg)
    assert {"exam: hard", "exam: easy", "quiz: hard", "quiz: easy"} <= set(named)
    # one kind; a figure of their own
    assert not [name for name in named if name.startswith(("lone", "needles"))]
