"""Labels by majority, and answers compared with them."""

from functools import partial

import pytest

from tasks.match import match
from tasks.scorers.accepted import equal
from tasks.vote import classes, majority, vote
from tests.support.comparisons import (
    compare,
    compare_once,
    compare_where,
    equal_numbers,
    limits_of_traps,
)
from tests.support.rows import publish, row

ENGINE = "engine error"


def answers_to(place, task_id, *texts, label="given"):
    """Answers a0, a1, ... with these texts; None is malformed, and ENGINE was never sampled."""
    rows = [
        row(
            "answers",
            rollout_id=f"{task_id}{i}",
            task_id=task_id,
            answer=None if text == ENGINE else text,
            malformed=text if text == ENGINE else "no box" if text is None else None,
        )
        for i, text in enumerate(texts)
    ]
    return publish(place, "answers", *rows, label=label)


def labelled(place, *texts, **settings):
    (found,) = vote(place, answers=answers_to(place, "t", *texts), **settings).rows()
    return found


def test_the_majority_is_the_label_as_its_earliest_member_wrote_it(place):
    found = labelled(place, "8", "14/2", "7", "7.0", "8", agree=equal_numbers)
    assert found == {
        "task_id": "t",
        "answer": "14/2",
        "rollout_id": "t1",
        "share": 3 / 5,
        "num_agreeing": 3,
        "num_readable": 5,
        "num_answers": 5,
        "num_classes": 2,
        "num_failed_comparisons": 0,
        "tied": False,
        "reason": None,
    }


def test_without_a_rule_texts_are_compared_as_they_stand(place):
    found = labelled(place, "7", "7.0", "8", "8")
    assert (found["answer"], found["share"], found["num_classes"]) == ("8", 0.5, 3)


def test_of_classes_of_one_size_the_one_sampled_first_wins_and_the_row_says_so(place):
    found = labelled(place, "9", "8", "7", "7", "8")
    assert (found["answer"], found["rollout_id"], found["tied"]) == ("8", "t1", True)


def test_unreadable_answers_and_engine_failures_are_no_votes(place):
    found = labelled(place, None, "7", ENGINE, "8", "7", None)
    assert (found["answer"], found["share"]) == ("7", 2 / 3)
    assert (found["num_readable"], found["num_answers"]) == (3, 5)


@pytest.mark.parametrize(
    "texts, num_answers, reason",
    [
        ((), 0, "no answers"),
        ((ENGINE, ENGINE), 0, "no answer could be sampled"),
        ((None, ENGINE), 1, "no readable answer"),
    ],
)
def test_a_task_without_a_label_says_why(place, texts, num_answers, reason):
    tasks = publish(place, "tasks", row("tasks", task_id="t"))
    (found,) = vote(place, answers=answers_to(place, "t", *texts), tasks=tasks).rows()
    assert (found["answer"], found["rollout_id"], found["num_answers"], found["reason"]) == (
        None,
        None,
        num_answers,
        reason,
    )


def test_tasks_are_labelled_apart_and_the_rule_sees_the_row_of_each(place):
    tasks = publish(
        place, "tasks", *(row("tasks", task_id=t, answer_type=kind) for t, kind in ("nN", "tT"))
    )
    tables = [answers_to(place, t, "7", "7.0", label=t) for t in "tn"]
    found = vote(place, answers=tables, tasks=tasks, agree=by_answer_type, num_workers=2).rows()
    assert [(r["task_id"], r["num_classes"]) for r in found] == [("n", 1), ("t", 2)]


def by_answer_type(task, answer):
    return (
        equal_numbers(task, answer) if task["answer_type"] == "N" else task["reference"] == answer
    )


def test_equal_texts_are_never_compared_and_other_pairs_only_until_a_class_agrees(place, tmp_path):
    log = tmp_path / "log"
    labelled(place, "7", "7", "8", "7", "8", agree=partial(compare_once, log=str(log)))
    assert log.read_text().split() == ["8", "7"]  # one pair, in both orders


def test_a_rule_that_holds_in_one_order_only_is_asked_in_both(place):
    found = labelled(place, "(b)", "b", agree=bare_answer_equals)
    assert (found["answer"], found["num_classes"]) == ("(b)", 1)


def bare_answer_equals(task, answer):
    return task["reference"] == answer.strip("()")


def test_an_answer_that_hangs_every_comparison_costs_few_of_them_and_stays_by_itself(
    place, monkeypatch
):
    limits_of_traps(monkeypatch)
    texts = ["7", "8", "9", "hang", "10", "hang"]
    found = labelled(place, *texts, agree=either_hangs, time_limit_s=0.3)
    assert (found["answer"], found["share"], found["num_classes"]) == ("hang", 2 / 6, 5)
    assert found["num_failed_comparisons"] == 1


def either_hangs(task, answer):
    return compare(task, "hang" if "hang" in (task["reference"], answer) else answer)


def test_a_comparison_that_cannot_tell_or_crashes_counts_as_unequal(place):
    found = labelled(place, "7", "unread", "crash", "7", agree=compare)
    assert (found["answer"], found["share"], found["num_classes"]) == ("7", 0.5, 3)
    assert found["num_failed_comparisons"] == 2


def test_a_fault_of_the_rule_is_not_taken_for_a_difference(place):
    with pytest.raises(RuntimeError, match="a fault of the rule"):
        labelled(place, "7", "fault", agree=compare)


def test_classes_are_formed_in_the_order_of_sampling():
    """If nearness is not transitive, an answer joins the first class whose first member is near."""
    near = classes(["1", "2", "3", "2"], lambda a, b: abs(int(a) - int(b)) <= 1)
    assert near.members == [[0, 1, 3], [2]]


def test_answers_are_matched_with_the_label_of_their_task(place):
    tasks = publish(place, "tasks", *(row("tasks", task_id=t, reference="0") for t in "tuv"))
    voted = [
        answers_to(place, "t", "7", "7", "8", label="t"),
        answers_to(place, "u", None, label="u"),
    ]
    labels = vote(place, answers=voted, tasks=tasks)
    some = [
        row("answers", rollout_id=f"{t}{text}", task_id=t, answer=text)
        for t in "tuv"
        for text in "70"
    ]
    tried = publish(place, "answers", *some, label="tried")
    found = match(place, tried, tasks, labels=labels, compare=compare).rows()
    assert [(r["matched"], r["reason"]) for r in found] == [
        (True, None),
        (False, None),
        (None, "no readable answer"),
        (None, "no readable answer"),
        (None, "no answers"),
        (None, "no answers"),
    ]


def test_one_readable_answer_is_enough(place):
    assert labelled(place, None, "7")["answer"] == "7"
    assert (
        majority([{"rollout_id": "a", "answer": "7", "malformed": None}], str.__eq__)["answer"]
        == "7"
    )


def test_by_default_answers_of_all_tasks_are_compared_in_one_process(place, tmp_path):
    tables = [answers_to(place, t, "7", "8", label=t) for t in "tu"]
    vote(place, answers=tables, agree=partial(compare_where, log=str(tmp_path / "pids")))
    assert len(set((tmp_path / "pids").read_text().split())) == 1


def test_a_label_replaces_all_answers_that_a_task_accepts(place):
    """The task accepts "Rhine" and "Rhein"; the majority says Elbe, and is right by its label."""
    tasks = publish(
        place,
        "tasks",
        row("tasks", task_id="t", reference="Rhine", accepted=["Rhine", "Rhein"]),
    )
    answers = answers_to(place, "t", "Elbe", "the Elbe", "Rhine")
    labels = vote(place, answers=answers, tasks=tasks, agree=equal)
    assert [label["answer"] for label in labels.rows()] == ["Elbe"]
    found = match(place, answers, tasks, labels=labels, compare=equal)
    assert [match["matched"] for match in found.rows()] == [True, True, False]
