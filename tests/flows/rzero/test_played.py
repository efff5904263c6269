"""R-Zero, one iteration over a scripted engine: sections 3.2 to 3.4 of arXiv 2508.05004, worked
by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flows.rzero.flow import rzero_iteration
from tasks.monitors.monitor import Alarm
from tests.support.scripted_play import (
    Asked,
    Script,
    any_text_model,
    changed_if,
    first_stale_in_fork,
    perform,
)
from warehouse.query import query
from warehouse.stopped import stopped
from warehouse.store import Store

SETTINGS = {
    "iterations": 1,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.response_tokens": 512,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 2,
    "challenger.group_size": 3,
    "solver.candidates": 8,
    "solver.answers": 8,
    "solver.steps": 3,
    "solver.prompts_per_step": 1,
    "solver.group_size": 2,
    "evaluation.benchmark": "none",
}
HALF = "Sum twenty with three!"
MOST = "Name a prime below ten"
EASY = "Spiders: how many legs?"
SILENT = "Why is there something?"
QUARTERS = "Pick any digit you like"
HARD = "Roll one die of eight sides"
SOUND = (HALF, MOST, QUARTERS)  # neither easy nor hard
SECRET = "4711"
ANSWERS: dict[str, list[str | None]] = {  # eight per question; a Solver step uses the first two
    HALF: ["23", "23", "32", "32", "32", "23", "32", "23"],
    MOST: ["7", "unboxed", "7", "5", None, None, None, "7"],
    EASY: ["8"] * 8,
    SILENT: ["unboxed"] * 8,
    QUARTERS: list("12341234"),
    HARD: list("12345678"),
}
TRAINING = [HALF, MOST, EASY, "malformed", None, HALF]  # three for each of two prompts
CANDIDATES = [HALF, MOST, EASY, "malformed", None, SILENT, QUARTERS, HARD]


def speaker(*questions: str | None):
    """The Challenger asks the questions in order."""
    left = list(questions)

    def say(asked: Asked) -> str | None:
        if asked.template == "challenger":
            question = None if asked.attempt else left.pop(0)  # an engine that failed fails again
            if question in (None, "malformed"):
                return question and "Nothing comes to mind."
            return f"<think>Hm.</think> <question>{question}</question>\n\\boxed{{{SECRET}}}"
        if asked.template == "audit":
            return (
                "Only one answer is right. [[YES]]"
                if HALF in asked.text
                else "[[YES]] would be rash: [[NO]]"
            )
        answer = ANSWERS[asked.text.partition("\n")[0]][asked.sample]
        return (
            answer
            if answer in (None, "unboxed")
            else rf"<think>\boxed{{0}}</think> It is \boxed{{{answer}}}."
        )

    return say


def play(
    folder, *questions: str | None, models: tuple[str, ...] = (), **changed: Any
) -> tuple[Store, Script]:
    script = Script(speaker(*questions))
    store = Store(folder / "store")
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        rzero_iteration(
            "micro", "r", {**SETTINGS, **changed, **dict.fromkeys(("models.base", *models), model)}
        )
    return store, script


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("rzero"), *TRAINING, *CANDIDATES)


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_the_challenger_is_paid_for_split_answers_less_the_share_of_like_questions(played) -> None:
    """Five of the six attempts count in eq. 4: the engine failed at one. HALF comes twice, so 2/5
    are alike.

    The first three get 0.6, 0.3 and 0, with a mean of 0.3 and a standard deviation of sqrt(0.06).
    """
    paid = rows(
        played,
        """
        select
            tasks.text,
            tasks.malformed,
            round(advantages.reward, 6),
            round(advantages.advantage, 3)
        from advantages join tasks using (run, task_id)
        where advantages.phase = 'challenger'
        """,
    )
    assert Counter(paid) == Counter(
        [
            (HALF, None, 0.6, 1.225),  # 1 - 2/5
            (MOST, None, 0.3, 0.0),  # 1/2 - 1/5
            (EASY, None, 0.0, -1.225),  # 0 - 1/5, but not below 0
            (HALF, None, 0.6, 1.0),
            (None, "no JSON object", 0.0, -1.0),
            (None, "engine error", None, 0.0),
        ]
    )


def test_labels_are_the_majoritys_and_of_equally_many_answers_the_first(played) -> None:
    labels = rows(
        played,
        """
        select tasks.text, labels.answer, labels.share, num_agreeing, num_readable, num_answers, tied, labels.reason
        from labels join tasks using (run, task_id)
        where labels.phase = 'pool' and tasks.text is not null
        """,  # noqa: E501
    )
    assert {text: told for text, *told in labels} == {
        HALF: ["23", 0.5, 4, 8, 8, True, None],
        # one without a box, three that the engine failed at
        MOST: ["7", 0.75, 3, 4, 5, False, None],
        EASY: ["8", 1.0, 8, 8, 8, False, None],
        SILENT: [None, None, 0, 0, 8, False, "no readable answer"],
        QUARTERS: ["1", 0.25, 2, 8, 8, True, None],
        HARD: ["1", 0.125, 1, 8, 8, True, None],
    }


def test_questions_are_kept_by_the_share_that_agrees_or_say_why_not(played) -> None:
    reasons = rows(
        played,
        "select tasks.text, selections.reason from selections join tasks using (run, task_id) order"
        " by all",
    )
    assert Counter(reasons) == Counter(
        [
            (HALF, None),
            (MOST, None),
            (QUARTERS, None),
            (EASY, "too easy"),
            (HARD, "too hard"),
            (SILENT, "no readable answer"),
            (None, "malformed: no JSON object"),
            (None, "malformed: engine error"),
        ]
    )


def test_the_solver_trains_once_on_each_kept_question_and_is_paid_for_agreeing_with_its_label(
    played,
) -> None:
    paid = rows(
        played,
        """
        select tasks.text, advantages.step, advantages.reward, round(advantages.advantage, 3)
        from advantages join tasks using (run, task_id)
        where advantages.phase = 'solver'
        order by tasks.text, advantages.reward
        """,
    )
    assert [(text, total, advantage) for text, _, total, advantage in paid] == [
        (MOST, 0.0, -1.0),  # a reply without a box is wrong
        (MOST, 1.0, 1.0),
        (QUARTERS, 0.0, -1.0),
        (QUARTERS, 1.0, 1.0),
        (HALF, 1.0, 0.0),
        (HALF, 1.0, 0.0),
    ]
    assert {step for _, step, *_ in paid} == {1, 2, 3}  # one step per batch, not the five allowed
    assert rows(played, "select phase, count(*) from batches group by all order by all") == [
        ("challenger", 5),
        ("solver", 6),
    ]


def test_each_player_is_updated_by_itself_and_speaks_as_its_last_update(played) -> None:
    updates = rows(played, "select role, parent, policy from updates order by role, step")
    assert [role for role, *_ in updates] == ["challenger", "solver", "solver"]
    (_, base, trained), (_, *once), (_, *twice) = updates
    assert once[0] == base and twice[0] == once[1]
    speaks = "select distinct role, policy from rollouts where phase = '{}' order by role, policy"
    assert rows(played, speaks.format("challenger")) == [("challenger", base), ("solver", base)]
    assert rows(played, speaks.format("pool")) == [("challenger", trained), ("solver", base)]
    answered = rows(
        played, "select distinct step, policy from rollouts where phase = 'solver' order by step"
    )
    policies = [base, once[1], twice[1]]
    taken = rows(played, "select step from updates where role = 'solver'")
    # HALF's step has no update
    num_before = [sum(step < number for (step,) in taken) for number in (1, 2, 3)]
    assert answered == [
        (number, policies[num]) for number, num in zip((1, 2, 3), num_before, strict=True)
    ]


def test_a_step_whose_answers_are_all_paid_alike_is_not_trained_on(played) -> None:
    """Both answers to HALF agree with its label; one answer to each of the other two questions
    does."""
    flat = rows(
        played,
        "select step from advantages where phase = 'solver' group by step"
        " having max(advantage) = 0",
    )
    assert len(flat) == 1
    assert flat[0] not in rows(played, "select step from updates where role = 'solver'")


def test_if_fewer_questions_are_kept_than_a_step_has_it_has_them_all(tmp_path) -> None:
    few = {"challenger.steps": 0, "solver.prompts_per_step": 4, "solver.steps": 1}
    done = play(tmp_path, *CANDIDATES, **few)
    answered = rows(
        done,
        "select tasks.text, count(*) from advantages join tasks using (run, task_id)"
        " where advantages.phase = 'solver' group by all",
    )
    assert dict(answered) == dict.fromkeys(SOUND, 2)
    assert rows(done, "select role from updates") == [("solver",)]


def test_the_solver_is_shown_the_question_and_nothing_else(played) -> None:
    shown = {asked.text for asked in played[1].asked if asked.template == "solver"}
    ending = r"Reason step by step, then put the final answer inside \boxed{}."
    assert {tuple(text.split("\n\n")) for text in shown} == {
        (question, ending) for question in ANSWERS
    }
    assert not any(SECRET in text for text in shown)
    asked = {asked.text for asked in played[1].asked if asked.template == "challenger"}
    assert len(asked) == 1  # a question is made from nothing: no document, no earlier question


def test_the_report_is_made_without_a_held_out_score(played) -> None:
    assert (played[0].root / "reports" / "r" / "iter-001.html").exists()


def test_an_engine_that_fails_at_every_question_trains_nobody_and_stops_nothing(tmp_path) -> None:
    done = play(tmp_path, *[None] * 14)
    assert rows(done, "select reason, count(*) from selections group by all") == [
        ("malformed: engine error", 8)
    ]
    assert rows(done, "select count(*) from updates") == [(0,)]
    assert {asked.template for asked in done[1].asked} == {"challenger"}


def test_without_challenger_steps_the_base_model_asks(tmp_path) -> None:
    done = play(
        tmp_path, MOST, EASY, **{"challenger.steps": 0, "solver.candidates": 2, "solver.steps": 1}
    )
    assert rows(done, "select role, count(*) from updates group by all") == [("solver", 1)]
    policies = rows(done, "select distinct policy from rollouts where phase = 'pool'")
    assert policies == [("model",)]


AUDITED = {"challenger.steps": 0, "solver.candidates": 4}


def test_questions_that_passed_and_that_an_auditor_rejects_stop_the_run_before_its_update(
    tmp_path,
) -> None:
    """The filter passes HALF, MOST and QUARTERS; the auditor sees these with their labels, and
    accepts HALF."""
    with pytest.raises(
        Alarm, match=r"gate_leak of auditor is 0\.667, the limit is 0\.5\..*monitor\.max_gate_leak"
    ):
        play(
            tmp_path,
            *SOUND,
            EASY,
            models=("models.auditor",),
            **AUDITED,
            **{"monitor.max_gate_leak": 0.5},
        )
    assert query(tmp_path / "store", "select * from updates") == []
    cause = stopped(Store(tmp_path / "store"), "r")
    assert cause is not None and cause.kind == "Alarm" and "max_gate_leak" in cause.why
    shown = query(
        tmp_path / "store",
        "select messages[1]['content'] as text from prompts where label = 'audit-gates'",
    )
    assert Counter(
        text for row in shown for text in SOUND if f"<task>\n{text}\n</task>" in row["text"]
    ) == Counter(SOUND)
    given = [row["text"].partition("<answer>\n")[2].partition("\n")[0] for row in shown]
    assert sorted(given) == ["1", "23", "7"]


def test_an_auditor_is_shown_as_many_of_the_questions_as_the_configuration_says(tmp_path) -> None:
    settings = {"audit.tasks": 2, "monitor.max_gate_leak": None}
    done = play(tmp_path, *SOUND, EASY, models=("models.auditor",), **AUDITED, **settings)
    assert rows(done, "select n from evaluations where metric = 'gate_leak of auditor'") == [(2,)]
    assert rows(done, "select count(*) from gates where gate = 'auditor' and kind = 'model'") == [
        (2,)
    ]


def test_all_that_leads_to_rewards_comes_out_the_same_when_it_is_made_again(
    played, tmp_path
) -> None:
    assert changed_if(rzero_iteration, played[0], tmp_path) == set()


def test_a_fork_shares_the_iteration_and_builds_the_next(played, tmp_path) -> None:
    assert first_stale_in_fork(rzero_iteration, played[0], tmp_path) is None
    stale = first_stale_in_fork(rzero_iteration, played[0], tmp_path, seed=5, iterations=2)
    assert stale and stale.startswith("f/iter-002/")
