"""MAE's Algorithm 1 once over a scripted engine: two steps of four, and a file of questions.

Every number is worked out by hand from the script.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flows.mae.flow import mae_iteration
from flows.mae.steps import seed_questions
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
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "iterations": 1,
    "steps": 1,
    "batch_size": 4,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.response_tokens": 512,
    "proposer.answers": 2,
    "mini_batch": 12,
    "evaluation.benchmark": "none",
    "questions.file": "",
    "questions.count": 2,
}
SEEDS = ["Which river runs through Vienna?", "How many legs have three spiders?"]
SECRET = "4711"
GOOD = "Which two primes sum to thirty one?"
DULL = "Name one thing you like about tea"
BLANK = "no tags at all"
QUALITY = {GOOD: "8", DULL: "7"}  # 7/9 enters, 6/9 does not
ANSWERS = {GOOD: ["2 and 29", "15 and 16"], DULL: ["steam", "steam"]}
MARKS = {
    "2 and 29": "10",
    "15 and 16": "1",
    "steam": "4",
    "wet": "nothing",
    "24": "9",
    "the Danube": "10",
}


def say(proposals: list[str | None]):
    left = list(proposals)
    seeds = {SEEDS[0]: "the Danube", SEEDS[1]: "24"}

    def reply(asked: Asked) -> str | None:
        if asked.template.startswith("propose"):
            question = None if asked.attempt else left.pop(0)  # an engine that failed fails again
            return f"<question>{question}</question>" if question in QUALITY else question
        if asked.template == "solve":
            text = asked.text.partition("\n")[0]
            answer = seeds.get(text) or ANSWERS[text][asked.sample]
            return f"<think><answer>0</answer></think> So: <answer>{answer}</answer>"
        if asked.template == "judge_question":
            return f"<think>Fine.</think><score>{QUALITY[asked.text.splitlines()[1]]}</score>"
        answer = asked.text.split("Answer:\n")[1].partition("\n")[0]
        return f"<score>{MARKS[answer]}</score> <score>{MARKS[answer]}</score>"

    return reply


def play(folder: Path, *proposals: str | None, **changed: object) -> tuple[Store, Script]:
    script = Script(say(list(proposals)))
    store = Store(folder / "store")
    model = str(any_text_model(folder / "model"))
    file = folder / "seeds.csv"
    file.write_text("question,answer\n" + "".join(f"{text},{SECRET}\n" for text in SEEDS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        settings = {**SETTINGS, "models.base": model, "questions.file": str(file), **changed}
        mae_iteration("micro", "r", settings)
    return store, script


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("mae"), GOOD, DULL, BLANK, None)


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_the_proposer_is_paid_for_quality_difficulty_and_format(played) -> None:
    """GOOD: quality 7/9, difficulty 1 - (1 + 0)/2, format 1. DULL: 6/9, 1 - 3/9, 1. The engine
    failed once."""
    paid = rows(
        played,
        """
        select tasks.text, round(advantages.reward, 4), advantages.unscorable
        from advantages join tasks using (run, task_id) where advantages.label = 'proposer'
        order by all
        """,
    )
    good = (7 / 9 + 1 / 2 + 1) / 3
    dull = (6 / 9 + 6 / 9 + 1) / 3
    assert Counter(paid) == Counter(
        [
            (GOOD, round(good, 4), None),
            (DULL, round(dull, 4), None),
            (None, 0.0, None),
            (None, None, "engine error"),
        ]
    )


def test_advantages_are_compared_within_a_role_only(played) -> None:
    means = rows(
        played,
        "select label, round(abs(sum(advantage)), 6) from advantages group by label order by label",
    )
    assert means == [("judge", 0.0), ("proposer", 0.0), ("solver", 0.0)]
    assert rows(played, "select count(*) from updates") == [(1,)]


def test_questions_of_quality_enter_the_pool_and_others_say_why_not(played) -> None:
    told = rows(
        played, "select text, kept, reason from pools where label = 'questions' order by text"
    )
    assert Counter(told) == Counter(
        [
            (SEEDS[0], True, None),
            (SEEDS[1], True, None),
            (GOOD, True, None),
            (DULL, False, "score too low to enter"),
        ]
    )


def test_the_solver_answers_the_pool_and_the_judge_marks_pairs_of_it(played) -> None:
    drawn = rows(played, "select text from draws where label = 'questions'")
    assert {text for (text,) in drawn} == {*SEEDS, GOOD} and len(drawn) == 4
    marked = rows(
        played,
        """
        select marks.task_id in (select task_id from pools where label = 'pairs'), format['total']
        from marks where label = 'judge'
        """,
    )
    assert marked == [(True, 0.5)] * 4  # every reply states its score twice


def test_half_of_the_prompts_show_a_question_of_the_pool(played) -> None:
    # the engine failed at one, and was asked again
    first = [asked for asked in played[1].asked if not asked.attempt]
    asked = Counter(asked.template for asked in first if asked.template.startswith("propose"))
    assert asked == {"propose": 2, "propose_harder": 2}


def test_no_reference_answer_reaches_a_prompt_or_a_table(played) -> None:
    assert not any(SECRET in asked.text for asked in played[1].asked)
    assert rows(played, "select count(*) from tasks where reference is not null") == [(0,)]
    assert rows(played, "select count(*) from pools where reference is not null") == [(0,)]


def test_too_few_pairs_leave_the_judge_untrained(tmp_path) -> None:
    done = play(
        tmp_path, BLANK, BLANK, BLANK, BLANK, **{"questions.count": 0, "questions.referenced": 0.0}
    )
    assert rows(done, "select count(*) from marks") == [(0,)]
    assert {asked.template for asked in done[1].asked} == {"propose"}


def test_a_judge_that_praises_everything_stops_the_run_before_its_update(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(QUALITY, GOOD, "10")
    monkeypatch.setitem(MARKS, "15 and 16", "10")
    with pytest.raises(Alarm, match=r"top_mark is 1, the limit is 0\.95"):
        play(tmp_path, GOOD, GOOD, BLANK, BLANK, **{"monitor.max_copy": 1.0})
    assert query(tmp_path / "store", "select * from updates") == []


def test_questions_that_say_nothing_stop_the_run_before_its_update(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(QUALITY, "why why", "10")
    monkeypatch.setitem(ANSWERS, "why why", ["24", "24"])
    with pytest.raises(Alarm, match=r"empty is 0\.5, the limit is 0\.3"):
        play(tmp_path, "why why", GOOD, BLANK, BLANK)


def test_a_role_that_is_not_trained_is_not_in_the_batch(tmp_path) -> None:
    done = play(tmp_path, GOOD, DULL, BLANK, BLANK, trained=["solver"])
    assert rows(
        done,
        "select distinct role from rollouts where rollout_id in (select rollout_id from batches)",
    ) == [("solver",)]


def test_another_pay_of_difficulty_changes_the_proposers_rewards_only(played, tmp_path) -> None:
    assert changed_if(mae_iteration, played[0], tmp_path) == set()
    other = {"proposer.difficulty_from": 0.7}
    assert changed_if(mae_iteration, played[0], tmp_path / "pay", **other) == {
        "rewards.proposer",
        "advantages.proposer",
    }


def test_a_fork_shares_the_iteration_and_builds_the_next(played, tmp_path) -> None:
    assert first_stale_in_fork(mae_iteration, played[0], tmp_path) is None
    stale = first_stale_in_fork(mae_iteration, played[0], tmp_path, seed=5, iterations=2)
    assert stale and stale.startswith("f/iter-002/")


def test_every_mini_batch_has_rollouts_of_several_roles(tmp_path) -> None:
    """Twelve rows in two steps of six; in the tables' order the first would have no Judge."""
    store, _ = play(tmp_path, GOOD, DULL, BLANK, GOOD, mini_batch=6)
    [steps] = query(store.root, "select count(*) as n from updates")
    datums = query(
        store.root,
        "select role from batches join rollouts using (run, rollout_id) order by datum, rollout_id",
    )
    assert steps["n"] == round(len(datums) / 6) == 2
    rows = store.get("r/iter-001/evolve/step-001/batches").rows()
    role_of = {
        row["rollout_id"]: row["role"]
        for row in query(store.root, "select rollout_id, role from rollouts")
    }
    roles = [role_of[row["rollout_id"]] for row in rows]
    assert len(set(roles[:6])) > 1 and len(set(roles[6:])) > 1 and roles != sorted(roles)


def test_the_first_questions_keep_their_passages_and_options(tmp_path) -> None:
    file = tmp_path / "seeds.jsonl"
    lines = [
        {"question": "Which of these conducts best?", "options": ["wood", "iron"], "answer": "B"},
        {"question": "Who founded it?", "context": "Ott founded the mill.", "answer": "Ott"},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    place = Store(tmp_path / "store").run("r")
    tasks = seed_questions(place, file=str(file), identity="i", count=2, seed=0)
    assert {row["text"] for row in tasks.rows()} == {
        "Which of these conducts best?\nA) wood\nB) iron",
        "Ott founded the mill.\n\nWho founded it?",
    }
