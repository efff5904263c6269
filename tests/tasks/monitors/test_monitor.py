"""Monitors: what they measure, and that they stop a run before an update, on every rerun as
well."""

import contextlib
import logging
import math

import pytest
from pydantic import ValidationError

from tasks.monitors.limits import Limits
from tasks.monitors.monitor import (
    BATCH,
    JUDGE,
    Alarm,
    canary_errors,
    check_pool,
    check_replies,
    contrast,
    judge_gap,
    label_errors,
    sampler_mismatch,
    vote_gap,
    watch,
)
from tests.support.rows import publish, row
from warehouse.store import Place, Table


def judgments(place, *given, label=None):
    """Verdicts with the expected verdict and the oracle's."""
    rows = (
        row("judgments", rollout_id=str(i), verdict=verdict, expected=expected, oracle=oracle)
        for i, (verdict, expected, oracle) in enumerate(given)
    )
    return publish(place, "judgments", *rows, label=label)


def means(measure, **given):
    """Metric -> mean, and the number of values."""
    values = {}
    for metric, value in measure(**given):
        values.setdefault(metric, []).append(value)
    return {metric: (math.fsum(of) / len(of), len(of)) for metric, of in values.items()}


STRICT = Limits(max_canary_error=0.05)
ERRING = [(1, 1, None), (1, 0, None), (None, 1, None), (0, 0, None), (1, None, None)]


def test_what_is_measured_is_stored_as_an_evaluation(place):
    found = watch(
        place,
        canary_errors,
        judgments=judgments(place, *ERRING),
        limits=Limits(max_canary_error=0.5),
        policy="grader",
        benchmark=JUDGE,
    )
    assert found == {"canary_error": 0.5, "false_fail": 0.5, "false_pass": 0.5}
    error, *_ = place.store.find("r/iter-001/solver/step-002/evaluations").rows()
    assert (error["policy"], error["benchmark"], error["metric"]) == (
        "grader",
        "judge monitor",
        "canary_error",
    )
    assert (error["n"], error["score"]) == (4, 0.5)
    assert error["standard_error"] == pytest.approx(math.sqrt(1 / 3 / 4))


def test_an_alarm_says_where_what_how_much_and_the_way_out(place):
    given = {"judgments": judgments(place, *ERRING), "policy": "grader", "benchmark": JUDGE}
    with pytest.raises(Alarm) as stop:
        watch(place, canary_errors, limits=STRICT, **given)
    alarm = stop.value
    assert (alarm.address, alarm.metric, alarm.value, alarm.limit) == (
        "r/iter-001/solver/step-002/evaluations",
        "canary_error",
        0.5,
        0.05,
    )
    assert (
        str(alarm)
        == "r/iter-001/solver/step-002/evaluations: canary_error is 0.5, the limit is 0.05. Look at"
        " the rows that it was measured on and fix the cause, or change"
        " monitor.max_canary_error."
    )
    with pytest.raises(Alarm, match=r"the limit is 0\.05\. Choose another grader\.$"):
        watch(place, canary_errors, limits=STRICT, way_out="Choose another grader.", **given)


def test_the_alarm_is_raised_again_by_a_rerun_until_the_limit_is_raised(place, caplog):
    given = {"judgments": judgments(place, *ERRING), "policy": "grader", "benchmark": JUDGE}
    for _ in range(2):
        with pytest.raises(Alarm):
            watch(place, canary_errors, limits=STRICT, **given)
    made = place.store.find("r/iter-001/solver/step-002/evaluations").recipe["started_at"]
    watch(place, canary_errors, limits=Limits(max_canary_error=0.6), **given)
    # measured once
    assert place.store.find("r/iter-001/solver/step-002/evaluations").recipe["started_at"] == made


def test_a_judge_that_was_never_perfect_is_stopped_only_when_it_gets_worse(place):
    """Half of the canaries are misjudged at first, then half again, then none, then three of
    four."""
    first = judgments(place, *ERRING, label="first")
    better = [(1, 1, None), (0, 0, None)]
    worse = [(0, 1, None), (1, 0, None), (None, 1, None), (0, 0, None)]
    found = {
        name: means(
            canary_errors, judgments=judgments(place, *rows, label=name).rows(), first=first.rows()
        )
        for name, rows in (("same", ERRING), ("better", better), ("worse", worse))
    }
    rises = {name: values["canary_rise"] for name, values in found.items()}
    assert rises == {"same": (0.0, 1), "better": (0.0, 1), "worse": (0.25, 1)}
    assert "canary_rise" not in means(canary_errors, judgments=first.rows())
    given = {"first": first, "limits": Limits(), "policy": "grader", "benchmark": JUDGE}
    watch(place, canary_errors, judgments=first, label="same", **given)
    with pytest.raises(Alarm, match=r"canary_rise is 0\.25, the limit is 0\.15"):
        watch(
            place,
            canary_errors,
            judgments=judgments(place, *worse, label="again"),
            label="worse",
            **given,
        )


@pytest.mark.parametrize("verdicts", [[(1, None, 0), (1, None, 1)], [(0, None, 1), (1, None, 1)]])
def test_a_gap_in_either_direction_is_an_alarm(place, verdicts):
    with pytest.raises(Alarm, match=r"judge_minus_oracle is -?0\.5, the limit is 0\.05"):
        watch(
            place,
            judge_gap,
            judgments=judgments(place, *verdicts),
            limits=Limits(),
            policy="grader",
            benchmark=JUDGE,
        )


def one(rewards):
    yield "kept", rewards[0]["components"]["kept"]


@pytest.mark.parametrize(
    "value, stops", [(0.2, True), (0.3, False), (0.9, False), (math.nan, True)]
)
def test_a_lower_limit_stops_below_it_and_what_is_no_number_always(place, value, stops):
    given = publish(place, "rewards", row("rewards", rollout_id="a", components={"kept": value}))
    settings = {"rewards": given, "limits": Limits(min_kept=0.3), "policy": "p", "benchmark": BATCH}
    if stops:
        with pytest.raises(Alarm, match="kept is"):
            watch(place, one, **settings)
    else:
        assert watch(place, one, **settings) == {"kept": value}


def test_without_a_limit_a_metric_is_only_stored(place):
    given = publish(place, "rewards", row("rewards", rollout_id="a", components={"kept": 0.0}))
    assert watch(place, one, rewards=given, limits=Limits(), policy="p", benchmark=BATCH) == {
        "kept": 0.0
    }


def test_a_method_adds_limits_of_its_own_metrics():
    class Ours(Limits):
        max_answer_tokens: float | None = 500.0

    assert Ours().max_answer_tokens == 500.0 and Ours().max_canary_rise == 0.15
    with pytest.raises(ValidationError):
        Limits.model_validate({"max_cannary_error": 0.1})
    with pytest.raises(TypeError, match="answer_tokens limits no metric"):

        class Wrong(Limits):
            answer_tokens: float = 500.0


def test_verdicts_are_compared_with_the_truth_where_both_are_known():
    rows = [
        row("judgments", verdict=v, oracle=o)
        for v, o in ((1, 0), (1, 1), (0, 1), (1, 0), (None, 1), (1, None))
    ]
    assert means(judge_gap, judgments=rows) == {
        "judge_minus_oracle": (0.25, 4),
        "judge_error": (0.75, 4),
    }


def is_even(task, answer):
    return None if task["text"] == "unknown" else int(answer) % 2 == 0


TASKS = [row("tasks", task_id=t, text=t) for t in ("even", "unknown")]


def test_votes_are_compared_with_an_oracle():
    answers = [row("answers", rollout_id=a, task_id="even", answer=a) for a in "1234"]
    answers.append(row("answers", rollout_id="5", task_id="unknown", answer="5"))
    given = [("1", 1), ("2", 1), ("2", 0), ("3", None), ("4", 1), ("5", 1)]
    votes = [row("votes", rollout_id=a, vote=v) for a, v in given]
    found = means(vote_gap, votes=votes, answers=answers, tasks=TASKS, oracle=is_even)
    assert found == {"vote_minus_oracle": (0.0, 4), "vote_error": (0.5, 4)}


def test_labels_are_compared_with_an_oracle():
    given = [("2", 3, 4), ("3", 1, 4), (None, 0, 0)]
    labels = [
        row("labels", task_id="even", answer=a, num_agreeing=k, num_readable=n) for a, k, n in given
    ]
    labels.append(row("labels", task_id="unknown", answer="5", num_agreeing=2, num_readable=4))
    found = means(label_errors, labels=labels, tasks=TASKS, oracle=is_even)
    assert found == {"label_share": (0.5, 3), "label_error": (0.5, 2)}


def replies(place, *malformed):
    rows = (row("answers", rollout_id=str(i), malformed=why) for i, why in enumerate(malformed))
    return publish(place, "answers", *rows)


@pytest.mark.parametrize(
    "limits, said",
    [
        (
            {"max_malformed": 0.24},
            r"malformed is 0\.25, the limit is 0\.24\. Of 5 replies: no box 1, engine error 1\.",
        ),
        ({"max_engine_failure": 0.19}, r"answers: engine_failure is 0\.2, the limit is 0\.19"),
        ({"max_malformed": 0.25, "max_engine_failure": 0.2}, None),
        ({"max_malformed": None, "max_engine_failure": None}, None),
    ],
)
def test_a_malformed_reply_is_the_policys_and_a_failure_the_engines(place, limits, said):
    """The engine failed at one of five replies; one of the other four is malformed."""
    table = replies(place, None, "no box", "engine error", None, None)
    limits = Limits(**{"max_malformed": None, "max_engine_failure": None, **limits})
    with pytest.raises(Alarm, match=said) if said else contextlib.nullcontext():
        check_replies(table, limits)


def rubrics(place: Place, num_unreadable: int, num_readable: int, why: str = "no rubric") -> Table:
    """Replies that are rubrics of eight criteria, each of which is a row."""
    rows = [
        row("rubrics", criterion_id=f"b{i}", judge_rollout_id=f"b{i}", malformed=why)
        for i in range(num_unreadable)
    ]
    rows += [
        row(
            "rubrics", criterion_id=f"g{i}-{k}", judge_rollout_id=f"g{i}", position=k, criterion="c"
        )
        for i in range(num_readable)
        for k in range(8)
    ]
    return publish(place, "rubrics", *rows)


def test_a_reply_that_is_read_into_several_rows_counts_once(place):
    check_replies(rubrics(place, 79, 21), Limits())
    said = r"malformed is 0\.81, the limit is 0\.8\. Of 100 replies: no rubric 81\."
    with pytest.raises(Alarm, match=said):
        check_replies(rubrics(place, 81, 19), Limits())
    with pytest.raises(Alarm, match=r"engine_failure is 0\.3, the limit is 0\.25"):
        check_replies(rubrics(place, 30, 70, "engine error"), Limits())


def test_prompts_over_the_limit_are_nobodys_failure_but_most_of_them_stop_the_run(place):
    table = replies(place, None, *["prompt over the limit"] * 9)
    check_replies(table, Limits(max_over_limit=0.9))
    with pytest.raises(Alarm, match=r"answers: over_limit is 0\.9, the limit is 0\.5"):
        check_replies(table, Limits())


def test_prompts_longer_than_the_context_are_no_failure_of_the_engine(place):
    table = replies(place, *[None] * 4, *["prompt over the limit"] * 6)
    check_replies(table, Limits(max_engine_failure=0.0, max_malformed=0.0, max_over_limit=0.6))
    said = r"over_limit is 0\.6, the limit is 0\.5\. .* change engine\.max_model_len, "
    with pytest.raises(Alarm, match=said):
        check_replies(table, Limits())


def test_attempts_may_all_be_malformed_but_not_fail(place):
    table = replies(place, *["no box"] * 8, "engine error")
    check_replies(table, Limits(max_engine_failure=0.2), attempts=True)
    with pytest.raises(Alarm, match="engine_failure"):
        check_replies(table, Limits(max_engine_failure=0.1), attempts=True)


def test_groups_without_contrast_are_counted_among_those_with_a_reward():
    given = [
        ("a", 1.0, 0.5),
        ("a", 0.0, -0.5),
        ("b", 1.0, 0),
        ("b", 1.0, 0),
        ("b", None, 0),
        ("c", 0.5, 0),
        ("d", None, 0),
    ]
    found = means(
        contrast,
        advantages=[
            row("advantages", group_id=g, reward=r, advantage=float(a)) for g, r, a in given
        ],
    )
    assert found == {"unscorable": (2 / 7, 7), "reward": (0.7, 5), "flat_group": (2 / 3, 3)}


def test_collapse_is_an_alarm_where_no_group_has_contrast(place):
    rows = [
        row("advantages", rollout_id=str(i), group_id=str(i // 2), reward=1.0, advantage=0.0)
        for i in range(8)
    ]
    with pytest.raises(Alarm, match=r"flat_group is 1, the limit is 0\.95"):
        watch(
            place,
            contrast,
            advantages=publish(place, "advantages", *rows),
            limits=Limits(),
            policy="p",
            benchmark=BATCH,
        )


def test_the_mismatch_of_trainer_and_engine_is_that_before_the_first_optimizer_step():
    steps = [
        (0, {"mean_ratio": 1.25, "sampler_kl": 0.02}),
        (1, {"mean_ratio": 3.0, "sampler_kl": 0.5}),
        (0, {}),
    ]
    rows = [row("updates", optimizer_step=n, metrics=m) for n, m in steps]
    assert means(sampler_mismatch, updates=rows) == {
        "sampler_kl": (0.02, 1),
        "ratio_gap": (0.25, 1),
    }


def selections(place, *kept, label=None):
    rows = (row("selections", task_id=str(i), kept=k) for i, k in enumerate(kept))
    return publish(place, "selections", *rows, label=label)


def test_a_short_pool_is_an_alarm_or_a_warning(place, caplog):
    tables = [selections(place, True, False), selections(place.step(3), True)]
    assert check_pool(tables, 2) == 2
    with pytest.raises(
        Alarm, match=r"step-003/selections: num_kept is 2, the limit is 3\. Raise max_batches\."
    ):
        check_pool(tables, 3, way_out="Raise max_batches.")
    with caplog.at_level(logging.WARNING, "selfplay"):
        assert check_pool(tables, 3, allow_short=True) == 2
    assert "num_kept is 2, the limit is 3" in caplog.text
