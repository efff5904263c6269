"""What monitors measure, worked by hand on rows with unequal numbers of right and wrong; and the
default limits."""

import pytest
from pydantic import ValidationError

from tasks.monitors.monitor import (
    Limits,
    canary_errors,
    contrast,
    judge_gap,
    label_errors,
    mark_errors,
    marks_given,
    reference_errors,
    reward_gap,
    same_labels,
    sampler_mismatch,
    tasks_written,
    vote_gap,
)
from tests.support.rows import row

DEFAULTS = {
    "max_canary_rise": 0.15,
    "max_judge_minus_oracle": 0.05,
    "max_reference_error": 0.3,
    "max_label_error": 0.3,
    "max_same_label": 0.8,
    "max_top_mark": 0.95,
    "max_gate_leak": 0.1,
    "max_malformed": 0.8,
    "max_engine_failure": 0.25,
    "max_over_limit": 0.5,
    "min_kept_ratio": 0.05,
    "max_flat_group": 0.95,
    "max_untrained": 5,
    "max_unscorable": 0.5,
    "max_reply_ratio": 3.0,
    "min_reply_ratio": 0.2,
    "max_repeat_of_earlier": 0.5,
    "max_empty": 0.3,
    "max_copy": 0.5,
    "max_falls": 0,
    "max_narrowings": 1,
    "max_sampler_kl": 0.05,
    "max_policy_stale": 0.5,
}
TASKS = [
    row("tasks", task_id=i, text=text)
    for i, text in (("t", "a sum"), ("u", "another"), ("gone", None))
]
ANSWERS = [
    row("answers", rollout_id=i, answer=text)
    for i, text in (("right", "4"), ("wrong", "5"), ("none", None))
]


def knows_four(task, answer: str) -> bool | None:
    """Whether an answer to the sum is 4; nothing is known of any other task."""
    assert task["text"] is not None and answer is not None, "what cannot be read is not asked about"
    return answer == "4" if task["text"] == "a sum" else None


def values(measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric, value in measured:
        found.setdefault(metric, []).append(value)
    return found


def test_limits_by_default_are_these_and_no_others_and_none_may_be_negative():
    assert {name: limit for name, limit in Limits() if limit is not None} == DEFAULTS
    for name in Limits.model_fields:
        assert getattr(Limits(**{name: 0}), name) == 0
        with pytest.raises(ValidationError, match=name):
            Limits(**{name: -0.01})
    with pytest.raises(ValidationError, match="frozen"):
        Limits().max_copy = 1  # type: ignore[misc]


def test_canaries_err_where_the_verdict_is_not_the_known_one():
    verdicts = [(1, 1), (1, 1), (0, 1), (None, 1), (0, 0), (0, 0), (1, 0), (1, None)]
    rows = [row("judgments", verdict=verdict, expected=expected) for verdict, expected in verdicts]
    assert values(canary_errors(rows)) == {
        "canary_error": [0, 0, 1, 1, 0, 0, 1],
        "false_fail": [0, 0, 1, 1],
        "false_pass": [0, 0, 1],
    }


def test_verdicts_are_compared_where_both_are_known():
    verdicts = [(1, 1), (1, 1), (1, 0), (0, 1), (0, 0), (None, 1), (1, None)]
    rows = [row("judgments", verdict=verdict, oracle=oracle) for verdict, oracle in verdicts]
    assert values(judge_gap(rows)) == {
        "judge_minus_oracle": [0, 0, 1, -1, 0],
        "judge_error": [0, 0, 1, 1, 0],
    }


def test_votes_are_compared_where_task_answer_and_truth_are_known():
    about = [
        (1, "t", "right"),
        (0, "t", "wrong"),
        (1, "t", "wrong"),
        (None, "t", "right"),
        (1, "u", "right"),
    ]
    about += [(1, "t", "none"), (1, "gone", "right")]
    rows = [
        row("votes", vote=vote, rollout_id=f"{task} {rollout}") for vote, task, rollout in about
    ]
    answers = [
        dict(a, rollout_id=f"{t} {a['rollout_id']}", task_id=t)
        for a in ANSWERS
        for t in ("t", "u", "gone")
    ]
    found = values(vote_gap(rows, answers, TASKS, oracle=knows_four))
    assert found == {"vote_minus_oracle": [0, 0, 1], "vote_error": [0, 0, 1]}


def test_pay_is_compared_where_score_and_truth_are_known():
    about = [
        (1.0, "right"),
        (0.0, "right"),
        (1.0, "wrong"),
        (0.25, "wrong"),
        (None, "right"),
        (1.0, "none"),
    ]
    rows = [
        row("rewards", score=score, rollout_id=rollout)
        for score, rollout in [*about, (1.0, "elsewhere")]
    ]
    answers = [dict(answer, task_id="t") for answer in ANSWERS]
    assert values(reward_gap(rows, answers, TASKS, oracle=knows_four)) == {
        "reward_minus_oracle": [0, -1, 1, 0.25],
        "reward_error": [0, 1, 1, 0.25],
        "reward_of_wrong": [1, 0.25],
    }
    assert (
        values(
            reward_gap(
                rows, [dict(answer, task_id="u") for answer in ANSWERS], TASKS, oracle=knows_four
            )
        )
        == {}
    )


def test_references_err_where_the_truth_is_another():
    given = [("a sum", "4"), ("a sum", "5"), ("another", "5"), ("a sum", None), (None, "4")]
    tasks = [row("tasks", text=text, reference=reference) for text, reference in given]
    assert values(reference_errors(tasks, oracle=knows_four)) == {"reference_error": [0, 1]}


def test_marks_err_on_the_wrong_side_of_the_middle():
    """0.5 counts as right. A mark of a task rather than an answer is compared with nothing."""
    about = [
        (0.9, "right"),
        (0.5, "right"),
        (0.4, "right"),
        (0.49, "wrong"),
        (0.5, "wrong"),
        (None, "right"),
    ]
    about += [(1.0, "none"), (1.0, None)]
    rows = [
        row("marks", mark=mark, rollout_id=rollout and f"t {rollout}") for mark, rollout in about
    ]
    rows += [row("marks", mark=1.0, rollout_id=f"{task} right") for task in ("u", "gone")]
    answers = [
        dict(a, rollout_id=f"{t} {a['rollout_id']}", task_id=t)
        for a in ANSWERS
        for t in ("t", "u", "gone")
    ]
    assert values(mark_errors(rows, answers, TASKS, oracle=knows_four)) == {
        "mark_error": [0, 0, 1, 0, 1],
        "mark_of_right": [0.9, 0.5, 0.4],
        "mark_of_wrong": [0.49, 0.5],
    }


def test_the_best_marks_are_counted_among_those_that_could_be_read():
    rows = [row("marks", mark=mark) for mark in (1.0, 0.99, None, 0.0)]
    assert values(marks_given(rows)) == {"mark": [1.0, 0.99, 0.0], "top_mark": [1, 0, 0]}


def test_tasks_are_empty_below_three_different_words_and_copies_of_earlier_ones():
    texts = ["a b c", "a b", "a b b a", "a  b c", None, "c b a", "a b"]
    rows = [row("tasks", text=text) for text in texts]
    assert values(tasks_written(rows)) == {"empty": [0, 1, 1, 0, 0, 1], "copy": [0, 0, 0, 1, 0, 1]}


def test_labels_err_where_the_oracle_knows_better():
    about = [
        ("t", "4", 3),
        ("t", "4", 4),
        ("t", "5", 1),
        ("u", "4", 2),
        ("t", None, 0),
        ("gone", "4", 4),
    ]
    rows = [row("labels", task_id=t, answer=a, num_agreeing=n, num_readable=4) for t, a, n in about]
    found = values(label_errors(rows, TASKS, oracle=knows_four))
    assert found == {"label_share": [0.75, 1.0, 0.25, 0.5], "label_error": [0, 0, 1]}


def test_labels_are_the_same_but_for_case_and_punctuation():
    said = ["The answer is:", "the answer is", None, "Four", "The  answer is.", *"abcd"]
    rows = [row("labels", task_id=str(n), answer=text) for n, text in enumerate(said)]
    assert values(same_labels(rows)) == {"same_label": [1, 1, 0, 1, 0, 0, 0, 0]}


def test_of_fewer_than_eight_labels_many_may_be_the_same_by_chance():
    rows = [row("labels", task_id=str(n), answer="a") for n in range(7)]
    rows.append(row("labels", task_id="unreadable", answer=None))
    assert values(same_labels(rows)) == {}


def test_a_group_is_flat_whose_rewards_are_all_equal():
    about = [
        ("g", 1.0, 0),
        ("g", 1.0, 0),
        ("h", 1.0, 1),
        ("h", 0.0, -1),
        ("h", None, 0),
        ("i", None, 0),
        ("j", 0.5, 0),
    ]
    rows = [
        row("advantages", group_id=group, reward=total, advantage=float(a))
        for group, total, a in about
    ]
    assert values(contrast(rows)) == {
        "unscorable": [0, 0, 0, 0, 1, 1, 0],
        "reward": [1.0, 1.0, 1.0, 0.0, 0.5],
        "flat_group": [1, 0, 1],
    }


def test_the_mismatch_is_that_of_the_first_step():
    metrics = [
        (0, {"sampler_kl": 0.2, "mean_ratio": 1.25}),
        (1, {"sampler_kl": 9.0}),
        (0, {"loss": 1.0}),
    ]
    rows = [row("updates", optimizer_step=step, metrics=given) for step, given in metrics]
    assert values(sampler_mismatch(rows)) == {"sampler_kl": [0.2], "ratio_gap": [0.25]}
