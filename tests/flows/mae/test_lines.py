"""`mae-iteration/smollm2`, scripted: a question on one line, its answer on one line, and a mark of
one word."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from flows.mae.flow import mae_iteration
from flows.runtime.store_root import SOURCE
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

SETTINGS = {
    "steps": 1,
    "batch_size": 4,
    "mini_batch": 12,
    "questions.count": 2,
    "proposer.answers": 2,
    "judge.judgments": 2,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "evaluation.items": 3,
}
# an example of the prompt
COPY = "What is the next number after 3, 6, 12, 24?"


PROPOSED = itertools.cycle([f" {COPY}\n", " What is 3 + 7?\nAnswer: no matter\n"])
JUDGED = itertools.cycle([" yes\n", " no\n", " 7\n"])


def say(asked: Asked) -> str:
    match asked.template:
        case "propose":
            return next(PROPOSED)
        case "propose_harder":
            return " What is 20 + 30 + 40?\n"
        case "judge_question":
            return " yes\n"
        case "judge_answer":
            return next(JUDGED)
        case _:
            return " 5 + 7 = 12\nQuestion: more\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        patch.chdir(SOURCE)  # profiles name their files from there
        perform(Script(say), patch)
        mae_iteration("smollm2", "r", {**SETTINGS, "models.base": model, "engine.model": model})
    return folder / "store"


def test_a_question_is_the_rest_of_its_line_and_no_example_of_the_prompt(store: Path) -> None:
    tasks = query(store, "select distinct text, malformed from tasks where phase = 'evolve'")
    texts = {row["text"] for row in tasks}
    assert "What is 20 + 30 + 40?" in texts
    assert not any("Answer" in (text or "") for text in texts)
    assert COPY not in texts
    assert "a copy of the prompt's own words" in {row["malformed"] for row in tasks}


def test_an_answer_is_what_follows_the_equals_sign(store: Path) -> None:
    answers = query(store, "select distinct answer from answers where phase = 'evolve'")
    assert [row["answer"] for row in answers] == ["12"]


def test_a_mark_is_one_word_and_another_word_is_none(store: Path) -> None:
    marks = query(
        store,
        "select distinct reply, mark, marks.malformed, marks.format.total as form from marks"
        " join rollouts on rollouts.rollout_id = marks.judge_rollout_id"
        " join prompts on prompts.prompt_id = rollouts.prompt_id"
        " where template = 'judge_answer' order by reply",
    )
    assert [tuple(row.values()) for row in marks] == [
        (" 7\n", None, "no verdict", 0.0),
        (" no\n", 0.0, None, 1.0),
        (" yes\n", 1.0, None, 1.0),
    ]


def test_all_three_roles_are_trained(store: Path) -> None:
    roles = query(
        store,
        "select distinct rollouts.role from batches join rollouts using (rollout_id) order by role",
    )
    assert {row["role"] for row in roles} == {"judge", "proposer", "solver"}
    assert query(store, "select count(*) as n from updates")[0]["n"] == 1
