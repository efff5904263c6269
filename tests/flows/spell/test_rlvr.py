"""SPELL's baseline RLVR: fixed questions, filtered for consistency, over a scripted engine; and the
micro-world's file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.blocks.long_context import QuestionSet
from flows.settings import profile
from flows.spell.config import TASK_TYPES, Config
from flows.spell.flow import spell_iteration
from flows.worlds.tables import cluster_oracle
from tests.support.scripted_play import Asked, Script, any_text_model, changed_if, perform
from warehouse.query import query
from warehouse.schemas import Task
from warehouse.store import Store

MICRO = "data/micro/questions.jsonl"
SETTINGS = {
    "iterations": 1,
    "steps": 2,
    "group_size": 4,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.input_tokens": 2048,
    "dialogues.response_tokens": 512,
    "sampling.groups": 2,
    "sampling.clusters_per_round": 4,
    "sampling.max_rounds": 1,
    "evaluation.benchmark": "none",
    "evaluation.probe_answers": 0,
    "evaluation.input_tokens": [2048],
}
GENERAL, FINANCE, CHOICE = TASK_TYPES
LINES = [
    {"id": "half", "task_type": GENERAL, "answer": "Rome", "second_answer": "It is Rome."},
    {"id": "once", "task_type": FINANCE, "answer": "1,250", "second_answer": "1250.9"},
    {
        "id": "all",
        "task_type": CHOICE,
        "answer": "B",
        "options": ["one", "two"],
        "second_answer": "B",
    },
    # written by people: has no second answer
    {"id": "none", "task_type": GENERAL, "answer": "Oslo"},
    {"id": "other", "task_type": GENERAL, "answer": "Rome", "second_answer": "Romeo"},
    {"id": "vague", "task_type": FINANCE, "answer": "7", "second_answer": "hard to say"},
]
LONG = "in the old town of Rome"
LONG_LINES = [
    {"id": "half", "task_type": GENERAL, "answer": LONG},
    {"id": "none", "task_type": GENERAL, "answers": [LONG, "in Rome"]},
    {"id": "once", "task_type": FINANCE, "answer": "1,250"},
]
SAID = {  # the four answers to each question; 1250.9 is within 0.15 % of 1,250
    "half": ["Rome", "Paris", "Rome", "Paris"],
    "once": ["1250.9", "12", "1300", "13"],
    "all": ["B", "B", "B", "B"],
    "none": ["Bergen", "Bergen", "Bergen", "Bergen"],
}


def say(asked: Asked) -> str:
    assert asked.template.startswith("responder"), asked.template
    (name,) = (name for name in SAID if f"What of {name}?" in asked.text)
    assert f"Of {name}." in asked.text
    return f"The answer is {SAID[name][asked.sample]}."


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return played(tmp_path_factory.mktemp("rlvr"))


def played(folder: Path, lines: Sequence[Mapping[str, Any]] = LINES, **overrides: Any) -> Store:
    """The store of a run on the questions of `lines`."""
    lines = [
        {"question": f"What of {line['id']}?", "context": f"Of {line['id']}.", **line}
        for line in lines
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(say), patch)
        own = {
            "models.base": model,
            "engine.model": model,
            "given": str(folder / "questions.jsonl"),
        }
        spell_iteration("micro-rlvr", "r", {**SETTINGS, **own, **overrides})
    return Store(folder / "store")


def rows(store: Store, sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(store.root, sql)]


def test_a_question_that_was_answered_otherwise_a_second_time_is_not_trained_on(store):
    found = rows(
        store, "select task_id, reason from selections where phase = 'given' order by task_id"
    )
    assert dict(found) == {
        "all": None,
        "half": None,
        "none": None,
        "once": None,
        "other": "answered otherwise a second time",
        "vague": "not compared: no number",
    }
    assert {
        name for (name,) in rows(store, "select distinct task_id from tasks where phase = 'play'")
    } == set(SAID)


def test_a_question_whose_answer_is_longer_than_a_reply_may_be_is_not_trained_on(tmp_path):
    """One short answer among those accepted is enough."""
    store = played(tmp_path, LONG_LINES, **{"dialogues.answer_words": 2})
    found = rows(store, "select task_id, reason from selections where phase = 'given'")
    assert dict(found) == {
        "half": "the answer has more than 2 words",
        "none": None,
        "once": None,
    }


def test_a_file_without_a_question_to_train_on_is_refused(tmp_path):
    why = "no question to train on: 1 the answer has more than 2 words"
    with pytest.raises(ValueError, match=why):
        played(tmp_path, LONG_LINES[:1], **{"dialogues.answer_words": 2})


def test_answers_are_paid_by_the_rule_and_groups_without_contrast_are_left_out(store):
    """half: rewards 1 0 1 0, mean 1/2 and deviation 1/2. once: 1 0 0 0, mean 1/4, deviation
    sqrt(3)/4."""
    reasons = rows(store, "select task_id, reason from selections where step = 1 order by task_id")
    assert dict(reasons) == {
        "all": "every answer right",
        "half": None,
        "none": "no answer right",
        "once": None,
    }
    found = rows(
        store, "select task_id, round(advantage, 3) from advantages where step = 1 order by 1, 2"
    )
    assert found == [
        ("half", -1.0), ("half", -1.0), ("half", 1.0), ("half", 1.0),
        ("once", -0.577), ("once", -0.577), ("once", -0.577), ("once", 1.732),
    ]  # fmt: skip


def test_nobody_asks_or_votes_and_every_question_comes_once_an_epoch(store):
    assert rows(store, "select distinct role from rollouts") == [("responder",)]
    counted = (
        "select step, count(distinct task_id) from tasks where phase = 'play' group by step order"
        " by step"
    )
    assert rows(store, counted) == [(1, 4), (2, 4)]  # two epochs of the four questions that stayed
    assert rows(store, "select role, count(*) from updates group by role") == [("policy", 2)]


def test_fewer_questions_are_the_same_ones_in_every_step(tmp_path):
    """Two of the four that may be trained on, which is fewer than a round asks."""
    store = played(tmp_path, given_questions=2)
    asked = "select step, list(task_id order by task_id) from tasks where phase = 'play' group by 1"
    by_step = dict(rows(store, asked))
    assert len(by_step[1]) == 2
    assert by_step[1] == by_step[2]
    assert set(by_step[1]) <= set(SAID)


def test_more_questions_than_the_file_has_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has 4 questions to train on, given_questions asks for 5"):
        played(tmp_path, given_questions=5)


def test_the_filter_and_the_rewards_can_be_recomputed_without_sampling(store, tmp_path):
    assert changed_if(spell_iteration, store, tmp_path) == set()


def test_given_questions_need_everybody_else_switched_off():
    with pytest.raises(
        ValueError, match=r"leave nothing to do for questioner\.trained, .*, verifier\.enabled"
    ):
        profile.load(Config, "micro", {"given": MICRO})


def test_the_questions_of_the_micro_world_are_true_where_both_answers_agree(place):
    tasks = QuestionSet.open(place, MICRO, TASK_TYPES).tasks.rows(Task)
    lines = [json.loads(line) for line in Path(MICRO).read_text().splitlines()]
    agree = [line["answer"] == line["second_answer"] for line in lines]
    assert [bool(cluster_oracle(task, task["reference"] or "")) for task in tasks] == agree
    assert (len(lines), sum(agree)) == (384, 336)
