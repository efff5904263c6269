"""Scores of answers to items, metrics computed from them, and two policies on the same items,
worked by hand."""

from __future__ import annotations

import json

import pytest
from scipy.stats import ttest_rel

from tasks.benchmarks.item_scores import compare, measure_items, score_items
from tests.support.rows import publish, row
from warehouse.store import Place, Table

PROTOCOL = {"revision": "r1", "prompt": ["short v1"], "judge": None}


def items(place: Place, *names: str) -> Table:
    about = {"references": ["Ann", "A. Lee"], "given": json.dumps({}), "kind": None}
    return publish(
        place, "items", *[row("items", task_id=name, text="who?", **about) for name in names]
    )


def said(
    place: Place,
    *answers: tuple[str, str | None, str | None],
    votes: dict[int, int | None] | None = None,
) -> dict:
    """Tables of answers (item, text, why malformed), sample after sample, and of a judge's votes
    on them."""
    rows = [
        row("answers", rollout_id=f"r{i}", prompt_id=task, task_id=task, answer=text, malformed=why)
        for i, (task, text, why) in enumerate(answers)
    ]
    earlier = [task for task, *_ in answers]
    rollouts = [
        row("rollouts", rollout_id=f"r{i}", prompt_id=task, sample=earlier[:i].count(task))
        for i, task in enumerate(earlier)
    ]
    tables = {
        "answers": publish(place, "answers", *rows),
        "rollouts": publish(place, "rollouts", *rollouts),
    }
    if votes is not None:
        voted = [
            row(
                "votes",
                judge_rollout_id=f"j{i}",
                rollout_id=f"r{i}",
                vote=None if isinstance(vote, str) else vote,
                malformed="no verdict" if vote is None else vote if isinstance(vote, str) else None,
            )
            for i, vote in votes.items()
        ]
        tables["judged"] = (publish(place, "votes", *voted),)
    return tables


def scores(
    place: Place,
    tables: dict,
    metric: tuple[str, ...] = ("em",),
    protocol: dict = PROTOCOL,
    **about,
) -> Table:
    return score_items(
        place,
        items(place, "q", "p"),
        **tables,
        scorer="short",
        metric=metric,
        protocol=protocol,
        **about,
    )


def test_an_unreadable_reply_is_wrong_and_one_that_the_engine_did_not_give_is_unscored(place):
    tables = said(
        place, ("q", "Ann", None), ("q", None, "no answer element"), ("p", None, "engine error")
    )
    first, second, third = scores(place, tables).rows()
    assert first["scores"] == {"em": 1, "f1": 1, "cover": 1, "readable": 1, "score": 1}
    assert second["scores"] == {"em": 0, "f1": 0, "cover": 0, "readable": 0, "score": 0}
    assert (second["sample"], second["unscored"]) == (1, None)
    assert (third["scores"], third["unscored"]) == ({}, "engine error")


def test_the_score_is_the_best_of_rule_and_judge_and_an_unread_verdict_counts_as_no(place):
    tables = said(
        place, ("q", "Lee", None), ("q", "Ann", None), ("p", "Zoe", None), ("p", None, "no box"),
        votes={0: 1, 1: 0, 2: None},
    )  # fmt: skip
    found = [row["scores"] for row in scores(place, tables, metric=("cover", "judged")).rows()]
    assert [scores["score"] for scores in found] == [1, 1, 0, 0]
    assert [scores["judged"] for scores in found] == [1, 0, 0, 0]
    assert [scores["unread_verdict"] for scores in found] == [0, 0, 1, 0]


def test_an_answer_that_the_judge_was_not_asked_about_is_unscored(place):
    """The judge's engine failed on the first; the second never reached it."""
    tables = said(place, ("q", "Lee", None), ("q", "Ann", None), votes={0: "engine error"})
    found = scores(place, tables, metric=("judged",)).rows()
    assert [row["unscored"] for row in found] == ["the judge gave no verdict"] * 2


@pytest.mark.parametrize(
    ("verdicts", "score"),
    [((1, 1, 0), 1.0), ((1, 0, 1), 0.5), ((0, 0, 1), 0.0), ((1, None, 0), 0.75), ((1, 0), None)],
)
def test_a_rubric_is_the_weights_of_the_criteria_that_are_met_and_some_cost(place, verdicts, score):
    """Weights 3, 1 and -1: of 4 points at most, 3 + 1, then 3 - 1, then -1, which counts as 0."""
    criteria = [
        {"text": "Says why.", "weight": 3},
        {"text": "Is short.", "weight": 1},
        {"text": "Lies.", "weight": -1},
    ]
    asked = publish(
        place, "items", row("items", task_id="q", given=json.dumps({"criteria": criteria}))
    )
    tables = said(place, ("q", "Because.", None))
    judged = [
        row("judgments", rollout_id="r0", task_id="q", criterion_id=str(i), verdict=verdict)
        for i, verdict in enumerate(verdicts)
    ]
    tables["judged"] = (publish(place, "judgments", *judged),)
    (found,) = score_items(
        place, asked, **tables, scorer="none", metric=("judged",), protocol=PROTOCOL
    ).rows()
    assert found["scores"].get("score") == score


@pytest.mark.parametrize(
    ("given", "marks", "judged"),
    [
        # one prompt: the mean of the marks in its last reply, which was asked for again
        ({}, [("a", "j0", None), ("a", "j1", 0.5), ("a", "j1", 1.0)], (0.75, 0)),
        ({}, [("a", "j0", None), ("a", "j1", None)], (0.0, 1)),
        # both orders: a clear preference is three marks, (1 + 1 + 1 + 0) / 4
        ({"against": "x"}, [("a", "j0", 1.0)] * 3 + [("b", "j1", 0.0)], (0.75, 0)),
        ({"against": "x"}, [("a", "j0", 0.5), ("b", "j1", None)], (0.25, 1)),
        ({"against": "x"}, [("a", "j0", 1.0)], None),  # the other order is missing
        ({}, [("a", "j0", "engine error")], None),
    ],
)
def test_marks_are_averaged_over_the_last_reply_to_each_prompt(place, given, marks, judged):
    asked = publish(place, "items", row("items", task_id="q", given=json.dumps(given)))
    tables = said(place, ("q", "Because.", None))
    rows = [
        row(
            "marks",
            judge_rollout_id=reply,
            prompt_id=prompt,
            task_id="q",
            rollout_id="r0",
            position=position if isinstance(mark, float) else None,
            mark=mark if isinstance(mark, float) else None,
            malformed=None if isinstance(mark, float) else mark or "no mark",
        )
        for position, (prompt, reply, mark) in enumerate(marks)
    ]
    tables["judged"] = (publish(place, "marks", *rows),)
    (found,) = score_items(
        place, asked, **tables, scorer="none", metric=("judged",), protocol=PROTOCOL
    ).rows()
    if judged is None:
        assert found["unscored"] == "the judge gave no verdict"
    else:
        assert (found["scores"]["judged"], found["scores"]["unread_verdict"]) == judged


def scored_rows(*values: tuple[str, float | None]) -> list[dict]:
    return [
        row(
            "item_scores",
            task_id=task,
            scores={} if value is None else {"score": value},
            unscored=None if value is not None else "engine error",
        )
        for task, value in values
    ]


def test_metrics_are_means_over_items_of_means_over_samples():
    asked = [
        row("items", task_id=name, kind=kind) for name, kind in (("a", "x"), ("b", "y"), ("c", "y"))
    ]
    rows = scored_rows(
        ("a", 1.0), ("a", 0.0), ("a", 0.0), ("a", 1.0), ("b", 0.0), ("b", None), ("c", None)
    )
    found: dict[str, list[float]] = {}
    for name, value in measure_items(asked, rows, passes=(2, 4)):  # pyright: ignore[reportArgumentType]
        found.setdefault(name, []).append(value)
    assert found == {
        "unscored": [0, 0.5, 1],
        "score": [0.5, 0],  # c does not count
        "pass_at_2": [pytest.approx(5 / 6)],  # 1 - C(2, 2) / C(4, 2); b has only one score
        "pass_at_4": [1],
        "score_x": [0.5],
        "score_y": [0],
    }


def test_differences_are_taken_item_by_item_with_students_t(place):
    """The means of a, b, c, d over samples are 1, 0.5, 0, 1 and 0, 0.5, 0, 1: differences 1, 0,
    0, 0."""
    ours = [("a", 1.0), ("a", 1.0), ("b", 1.0), ("b", 0.0), ("c", 0.0), ("d", 1.0), ("e", 1.0)]
    base = [("a", 0.0), ("b", 1.0), ("b", 0.0), ("c", 0.0), ("d", 1.0), ("e", None)]
    tables = [
        protocolled(place, str(i), PROTOCOL, *values) for i, values in enumerate((ours, base))
    ]
    (found,) = compare(place, *tables, policy="new", base="old", benchmark="b").rows()
    low, high = ttest_rel([1, 0.5, 0, 1], [0, 0.5, 0, 1]).confidence_interval(0.95)
    assert (found["n"], found["num_left_out"]) == (4, 1)
    assert (found["score"], found["base_score"], found["difference"]) == (0.625, 0.375, 0.25)
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    # t of 3 degrees; the standard error is 0.25
    assert low == pytest.approx(0.25 - 3.182446 * 0.25, abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"judge": ["J"]}, "judge is"),
        ({"revision": "r2"}, "revision is r2, was r1"),
        ({"prompt": ["short v2"]}, "prompt is"),
    ],
)
def test_scores_that_were_not_come_by_in_the_same_way_are_not_compared(place, changed, says):
    ours = protocolled(place, "ours", {**PROTOCOL, **changed}, ("a", 1.0))
    base = protocolled(place, "base", PROTOCOL, ("a", 1.0))
    with pytest.raises(ValueError, match=f"new and old cannot be compared on b: {says}"):
        compare(place, ours, base, policy="new", base="old", benchmark="b")


def protocolled(
    place: Place, label: str, protocol: dict, *values: tuple[str, float | None]
) -> Table:
    """Scores with the protocol in their recipe, as the stage writes it."""
    schema = publish(place, "item_scores", label="columns").schema
    recipe = {
        "key": label,
        "stage": "tests.given",
        "started_at": 0.0,
        "seconds": 0.0,
        "counts": {},
        "params": {"protocol": protocol},
    }
    with place.store.draft(schema) as draft:
        draft.write([{**r, "rollout_id": str(i)} for i, r in enumerate(scored_rows(*values))])
        return place.store.publish(draft, place.address("item_scores", label), recipe)
