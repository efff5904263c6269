"""Means over tasks, with their standard errors."""

from tasks.evaluate import evaluate, scores_of
from tests.support.rows import publish, row


def test_each_metric_has_its_mean_its_error_and_the_number_of_its_tasks(place):
    """0, 0 and 3 have mean 1, variance 6 / 2, and a standard error of the mean of sqrt(3 / 3)."""

    def measure(answers, *, scale):
        yield from (("score", scale * float(a["answer"])) for a in answers)
        yield "single", 7.0

    answers = publish(
        place,
        "answers",
        *(row("answers", rollout_id=str(i), answer=a) for i, a in enumerate("003")),
    )
    table = evaluate(place, measure, policy="p", benchmark="b", answers=answers, scale=1)
    about = {"policy": "p", "benchmark": "b", "protocol": None}
    assert table.rows() == [
        {**about, "metric": "score", "n": 3, "score": 1.0, "standard_error": 1.0},
        {**about, "metric": "single", "n": 1, "score": 7.0, "standard_error": None},
    ]
    assert scores_of(table) == {"score": 1.0, "single": 7.0}


def test_a_metric_without_a_score_is_none_of_the_scores(place):
    rows = [
        row("evaluations", metric=name, score=score) for name, score in (("a", 0.0), ("b", None))
    ]
    assert scores_of(publish(place, "evaluations", *rows)) == {"a": 0.0}
