"""Verdicts that err on purpose: which, and how many, against a truth that is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.blocks.erring import erring_verdicts
from tasks.erring import erring, erring_matches, read_erring_judgments, verdict_errors
from tasks.noise import VerdictErrors
from tests.support.rows import publish, row

NUM_TASKS = 400
RIGHT = "7"


def oracle(task, answer):
    """7 is right; about a task without a reference nobody knows."""
    if task["reference"] is None:
        return None
    return answer == RIGHT


def verdicts(place, errors, texts=("7", "8", "8", "9"), num_tasks=1, reference=RIGHT):
    """The erring verdicts on `texts`, answers to each of `num_tasks` tasks, by task and answer."""
    names = [(t, n) for t in range(num_tasks) for n in range(len(texts))]
    tasks = publish(
        place,
        "tasks",
        *(
            row("tasks", task_id=f"t{t}", text="a question", reference=reference)
            for t in range(num_tasks)
        ),
    )
    answers = publish(
        place,
        "answers",
        *(
            row("answers", rollout_id=f"t{t}a{n}", task_id=f"t{t}", answer=texts[n])
            for t, n in names
        ),
    )
    rollouts = publish(
        place,
        "rollouts",
        *(
            row("rollouts", rollout_id=f"t{t}a{n}", reply="x" * (n + 1), prompt_id=f"t{t}")
            for t, n in names
        ),
    )
    matches = publish(
        place,
        "matches",
        *(
            row("matches", rollout_id=f"t{t}a{n}", task_id=f"t{t}", matched=texts[n] == RIGHT)
            for t, n in names
        ),
    )
    table = erring_matches(
        place, matches, answers, rollouts, tasks, oracle=oracle, errors=errors, seed=0
    )
    matched = {r["rollout_id"]: r["matched"] for r in table.rows()}
    by_task = [[matched[f"t{t}a{n}"] for n in range(len(texts))] for t in range(num_tasks)]
    errs = [
        value
        for metric, value in verdict_errors(
            table.rows(), answers.rows(), tasks.rows(), oracle=oracle
        )
        if metric == "verdict_error"
    ]
    return by_task, errs


def test_verdicts_without_a_truth_and_answers_without_a_verdict_are_not_measured():
    tasks: Any = [
        row("tasks", task_id="known", text="a question", reference=RIGHT),
        row("tasks", task_id="unknown", text="a question", reference=None),
    ]
    # answer, its task, its text, the verdict on it
    given = [("a", "known", "7", False), ("b", "known", "8", True), ("c", "known", "8", False)]
    left_out = [("d", "known", "8", None), ("e", "unknown", "8", True)]
    answers: Any = [
        row("answers", rollout_id=name, task_id=task, answer=text)
        for name, task, text, _ in [*given, *left_out]
    ]
    matches: Any = [
        row("matches", rollout_id=name, task_id=task, matched=matched)
        for name, task, _, matched in [*given, *left_out]
    ]
    assert list(verdict_errors(matches, answers, tasks, oracle=oracle)) == [
        ("verdict_error", 1.0),
        ("verdict_error", 1.0),
        ("wrong_passes", 1.0),
        ("verdict_error", 0.0),
        ("wrong_passes", 0.0),
    ]


TRUTH = [True, False, False, False]


def test_a_share_of_zero_leaves_the_truth(place):
    assert verdicts(place, VerdictErrors(shape="task", share=0))[0] == [TRUTH]


def test_independent_errors_are_a_share_of_all_verdicts(place):
    by_task, errs = verdicts(place, VerdictErrors(shape="independent", share=0.2), num_tasks=400)
    share = sum(errs) / len(errs)
    assert abs(share - 0.2) < 0.04, "four standard errors of 1,600 draws"
    partly = [matched for matched in by_task if matched not in (TRUTH, [not t for t in TRUTH])]
    assert partly, "the verdicts on one task err one by one"


def test_errors_of_a_task_flip_all_of_its_verdicts(place):
    by_task, errs = verdicts(place, VerdictErrors(shape="task", share=0.2), num_tasks=NUM_TASKS)
    flipped = [not is_right for is_right in TRUTH]
    assert {tuple(matched) for matched in by_task} == {tuple(TRUTH), tuple(flipped)}
    assert abs(by_task.count(flipped) / NUM_TASKS - 0.2) < 0.08
    assert sum(errs) == 4 * by_task.count(flipped)


def test_a_mistake_as_reference_passes_the_most_frequent_wrong_answer_alone(place):
    """Of 7, 8, 8 and 9 the two 8 pass: three errors, as the 9 fails rightly."""
    by_task, errs = verdicts(place, VerdictErrors(shape="mistake", share=1))
    assert by_task == [[False, True, True, False]]
    assert errs == [1.0, 1.0, 1.0, 0.0]


def test_a_policy_without_mistakes_has_none_that_could_pass(place):
    by_task, _ = verdicts(place, VerdictErrors(shape="mistake", share=1), texts=("7", "7"))
    assert by_task == [[True, True]]


def test_length_passes_replies_above_the_median_of_their_group(place):
    """Replies of 1, 2, 3 and 4 characters: the median is 2.5."""
    by_task, _ = verdicts(place, VerdictErrors(shape="length", share=1))
    assert by_task == [[False, False, True, True]]


def test_an_answer_that_was_not_read_or_has_no_known_truth_keeps_its_verdict(place):
    errors = VerdictErrors(shape="independent", share=1)
    assert verdicts(place, errors, reference=None)[0] == [TRUTH]


def test_a_larger_share_errs_wherever_a_smaller_one_does():
    truth = {f"a{n}": True for n in range(1000)}

    def wrong(share):
        return {
            name
            for name, matched in erring(
                truth,
                VerdictErrors(shape="independent", share=share),
                draw=lambda name: int(name[1:]) / 1000,
                task_id="t",
                answer_of={},
                length_of={},
            ).items()
            if not matched
        }

    assert wrong(0.1) < wrong(0.4)
    assert len(wrong(0.1)) == 100


def test_errors_without_a_world_are_refused_in_words():
    run: Any = SimpleNamespace(world=None)
    nothing: Any = None
    with pytest.raises(ValueError, match="needs a built-in world that knows the truth"):
        erring_verdicts(
            run,
            nothing,
            "a policy",
            VerdictErrors(shape="task", share=0.1),
            matches=nothing,
            answers=nothing,
            rollouts=nothing,
            tasks=(),
        )


ANSWERS = {"a0": "one", "a1": "a town", "a2": "a town by a river", "a3": "a very long answer"}
MEETS = {"a town", "a town by a river"}


def names_a_town(criterion, answer):
    if criterion == "unknown":
        return None
    return answer in MEETS


def graded(place, errors, num_tasks=1):
    """The verdicts on `ANSWERS` to each of `num_tasks` tasks by two criteria, of which the oracle
    knows only the first; the grader says no to all, and gives no verdict on the answer a1."""
    names = [(f"t{t}", answer) for t in range(num_tasks) for answer in ANSWERS]
    criteria = ("known", "unknown")
    rubrics = publish(
        place,
        "rubrics",
        *(
            row("rubrics", task_id=f"t{t}", criterion_id=f"t{t}-{kind}", criterion=kind)
            for t in range(num_tasks)
            for kind in criteria
        ),
    )
    answers = publish(
        place,
        "answers",
        *(
            row("answers", rollout_id=f"{task}{name}", task_id=task, answer=ANSWERS[name])
            for task, name in names
        ),
    )
    asked = [(f"{task}{name}", task, f"{task}-{kind}") for task, name in names for kind in criteria]
    prompts = publish(
        place,
        "prompts",
        *(
            row(
                "prompts",
                prompt_id=f"{answer} {criterion}",
                rollout_id=answer,
                task_id=task,
                criterion_id=criterion,
            )
            for answer, task, criterion in asked
        ),
    )
    rollouts = publish(
        place,
        "rollouts",
        *(
            row(
                "rollouts",
                rollout_id=f"judge {answer} {criterion}",
                prompt_id=f"{answer} {criterion}",
                reply="?" if answer.endswith("a1") else "0",
            )
            for answer, _, criterion in asked
        ),
    )
    table = read_erring_judgments(
        place,
        rollouts,
        prompts,
        rubrics,
        answers,
        read=int,
        oracle=names_a_town,
        errors=errors,
        seed=0,
    )
    return {(r["rollout_id"], r["criterion_id"]): r for r in table.rows()}


def known_verdicts(place, errors):
    rows = graded(place, errors)
    return [rows[f"t0{answer}", "t0-known"]["verdict"] for answer in ANSWERS]


def test_verdicts_on_criteria_are_the_truth_where_it_is_known(place):
    rows = graded(place, VerdictErrors(shape="independent", share=0))
    assert known_verdicts(place, VerdictErrors(shape="independent", share=0)) == [0, None, 1, 0]
    assert rows["t0a1", "t0-known"]["oracle"] == 1, "an unread verdict stays unread"
    assert [rows[f"t0{a}", "t0-unknown"]["verdict"] for a in ANSWERS] == [0, None, 0, 0]


def test_a_judge_that_favours_length_passes_answers_above_the_median(place):
    """Of the three answers with a verdict and a truth, the one of 17 characters is the median."""
    assert known_verdicts(place, VerdictErrors(shape="length", share=1)) == [0, None, 0, 1]


def test_verdicts_on_criteria_of_a_task_are_flipped_together(place):
    assert known_verdicts(place, VerdictErrors(shape="task", share=1)) == [1, None, 0, 1]


def test_verdicts_on_criteria_err_one_by_one(place):
    rows = graded(place, VerdictErrors(shape="independent", share=0.2), num_tasks=NUM_TASKS)
    wrong = [
        r["verdict"] != r["oracle"]
        for r in rows.values()
        if r["verdict"] is not None and r["oracle"] is not None
    ]
    assert len(wrong) == 3 * NUM_TASKS
    assert abs(sum(wrong) / len(wrong) - 0.2) < 0.05
