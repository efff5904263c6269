"""Search Self-Play's steps over a scripted engine, with real searches, filters and updates.

Every number is worked out by hand from the script: four answers, two steps, four answers to a
question. In the first step one question is valid; in the second none is, so that one is replayed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flows.app.viewer.equations import show
from flows.environments.environment import environment_of
from flows.environments.recorded import Recording
from flows.pilot.play import play_pilot
from flows.pilot.signals import measure
from flows.runtime.record import last_request
from flows.runtime.request import Request
from flows.settings import profile
from flows.ssp.config import Config
from flows.ssp.flow import ssp_iteration
from tasks.scorers.accepted import equal
from tests.support.scripted_play import (
    Asked,
    Script,
    any_text_model,
    changed_if,
    first_stale_in_fork,
    perform,
)
from warehouse.query import query
from warehouse.schemas import REWARDS, UPDATES
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "iterations": 1,
    "steps": 2,
    "questions": 4,
    "answers": 4,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.chat_template": "model",
    "dialogues.stop": [],
    "dialogues.response_tokens": 512,
    "dialogues.prompt_tokens": 4096,
    "dialogues.context_tokens": 4096,
    "dialogues.documents_per_query": 1,
    "proposer.min_words": 10,
    "proposer.invalid_reward": 0.0,
    "check.noise": 1,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "monitor.max_copy": None,
    "monitor.max_malformed": None,
    "monitor.max_unscorable": None,
}
ANSWERS = ("Alba", "Borin", "Cestra", "Dorven")
# what a searching Proposer asks; a question names its answer's number only
QUESTION = "Which town has a bridge that was built by the engineer number {number} of the north?"


def document(name: str) -> dict[str, str]:
    number = ANSWERS.index(name)
    title = "Cestra (town)" if name == "Cestra" else name
    return {"id": name, "title": title, "text": f"The bridge of {name} is by engineer {number}."}


class Speaker:
    """What each role says. A Proposer that has an answer for the second time finds no question."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> str:
        if asked.template == "proposer":
            return self.propose(asked)
        number = next(i for i in range(4) if f"engineer number {i}" in asked.text)
        if asked.template == "checker":
            # of what was found the model makes the right answer, except once
            return f"So <answer>{'Borin' if number == 2 else ANSWERS[number]}</answer>"
        if asked.turn == 0:
            return f"<think>Who?</think><search>engineer {number}</search>"
        replies = [f"<answer>the {ANSWERS[number]}.</answer>", "<answer>Rome</answer>"]
        return [*replies, "<answer></answer>", "no answer at all"][asked.sample]

    def propose(self, asked: Asked) -> str:
        name = next(name for name in ANSWERS if f"The answer: {name}\n" in asked.text)
        if asked.turn == 0:
            self.begun[name] += 1
            return f"<think>What is near it?</think><search>bridge of {name}</search>"
        if asked.turn == 1 and name != "Dorven":
            return "<search>engineers</search>"
        question = QUESTION.format(number=ANSWERS.index(name))
        if name == "Borin":
            question += " It is called Borin."
        if name == "Alba" and self.begun[name] > 1:
            return "<question></question>"
        return f"<think>Ask.</think><question>{question}</question>"


def play(folder: Path, **changed: object) -> tuple[Store, Script]:
    script = Script(Speaker())
    store = Store(folder / "store")
    folder.mkdir(exist_ok=True)
    corpus = folder / "towns.jsonl"
    corpus.write_text("".join(json.dumps(document(name)) + "\n" for name in ANSWERS))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        settings = {**SETTINGS, "models.base": model, **changed}
        ssp_iteration("smollm2", "r", settings, str(corpus))
    return store, script


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("ssp"))


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_each_question_that_is_not_valid_has_the_first_reason(played) -> None:
    selected = rows(
        played, "select step, document_id, reason from selections order by step, document_id"
    )
    assert selected == [
        (1, "Alba", None),
        (1, "Borin", "rule: answer is hidden"),
        (1, "Cestra", "check: another answer"),
        (1, "Dorven", "rule: searched"),
        (2, "Alba", selected[4][2]),
        (2, "Borin", "rule: answer is hidden"),
        (2, "Cestra", "check: another answer"),
        (2, "Dorven", "rule: searched"),
    ]
    assert selected[4][2].startswith("malformed: ")


def test_a_question_is_about_the_title_without_its_brackets(played) -> None:
    [(reference, difficulty, evidence)] = rows(
        played,
        """
        select distinct reference, difficulty, evidence from tasks
        where label = 'questions' and document_id = 'Cestra' and step = 1
        """,
    )
    assert (reference, difficulty) == ("Cestra", 2) and "Cestra" in evidence


def test_only_questions_that_pass_the_rules_are_checked_with_documents(played) -> None:
    checked = [asked.text for asked in played[1].asked if asked.template == "checker"]
    assert Counter(f"number {i}" in text for text in checked for i in (0, 2))[True] == len(checked)
    assert len(checked) == 3  # Alba and Cestra, then Cestra
    alba = next(text for text in checked if "number 0" in text)
    assert "The bridge of Alba" in alba


def test_the_proposer_earns_what_the_solver_loses(played) -> None:
    """One of four answers to Alba's question is right: 1 - 1/4, without a baseline."""
    earned = rows(
        played,
        """
        select a.step, t.document_id, a.reward, a.advantage
        from advantages as a join tasks as t on t.task_id = a.task_id and t.label = 'questions'
        where a.label = 'proposer' order by all
        """,
    )
    assert earned == [
        (step, name, reward, reward)
        for step in (1, 2)
        for name, reward in zip(ANSWERS, (0.75 * (step == 1), 0.0, 0.0, 0.0), strict=True)
    ]


def test_the_solver_is_compared_within_each_question(played) -> None:
    """Rewards 1, 0, 0, 0: the mean is 1/4, the standard deviation is the root of 3/16. In the
    second step nothing new is valid, and the question of the first is asked again."""
    advantages = rows(
        played,
        """
        select step, list(round(advantage, 3) order by advantage) from advantages
        where label = 'solver' group by all order by all
        """,
    )
    assert advantages == [(step, [-0.577, -0.577, -0.577, 1.732]) for step in (1, 2)]
    drawn = rows(played, "select step, document_id from draws order by step")
    assert drawn == [(1, "Alba"), (2, "Alba")]
    assert len(list(played[0].tables("r", UPDATES))) == 2


def test_both_roles_have_half_of_the_weight_of_an_update(played) -> None:
    trained = rows(
        played,
        """
        select r.role, count(distinct b.rollout_id) from batches as b
        join rollouts_table as r using (rollout_id)
        where b.step = 1 group by 1 order by 1
        """,
    )
    assert trained == [("proposer", 4), ("solver", 4)]


def test_the_solver_searches_and_sees_the_question_alone(played) -> None:
    [shown] = {asked.text for asked in played[1].asked if asked.template == "solver"}
    assert "number 0" in shown and "Alba" not in shown
    searched = rows(played, "select distinct num_searches from answers where label is null")
    assert searched == [(1,)]


def test_without_replay_a_step_without_valid_questions_teaches_nothing(tmp_path: Path) -> None:
    store, _ = play(tmp_path / "none", replay=False)
    assert [table.at.step for table in store.tables("r", UPDATES)] == [1]


def test_without_the_check_a_question_with_another_answer_is_valid(tmp_path: Path) -> None:
    store, script = play(tmp_path / "none", steps=1, **{"check.enabled": False})
    assert not [asked for asked in script.asked if asked.template == "checker"]
    kept = query(store.root, "select document_id from selections where kept order by 1")
    assert [row["document_id"] for row in kept] == ["Alba", "Cestra"]


def test_documents_without_titles_are_an_error_that_says_so(tmp_path: Path) -> None:
    corpus = tmp_path / "towns.jsonl"
    text = "A text without a title begins with itself, and that is not the answer to any question."
    corpus.write_text(json.dumps({"id": "1", "text": text}) + "\n")
    model = str(any_text_model(tmp_path / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
        perform(Script(Speaker()), patch)
        with pytest.raises(ValueError, match=r"no document of corpus .* has a title of at most 10"):
            ssp_iteration("smollm2", "r", {**SETTINGS, "models.base": model}, str(corpus))


def test_the_viewer_shows_an_equation_that_gives_every_reward(played) -> None:
    equations = Counter()
    for table in played[0].tables("r", REWARDS):
        for reward in table.rows():
            shown = show(table.recipe["params"], reward["components"], reward["reward"], [])
            assert shown is not None, reward
            equations[shown.general] += 1
    assert equations == {"g": 8, "invalid": 7, "1 − success": 1}


def test_a_rerun_makes_equal_tables(played, tmp_path: Path) -> None:
    assert changed_if(ssp_iteration, played[0], tmp_path) == set()


def test_a_fork_continues_without_making_anything_again(played, tmp_path: Path) -> None:
    assert first_stale_in_fork(ssp_iteration, played[0], tmp_path) is None


def test_valid_questions_can_be_exported_with_their_rule(played) -> None:
    store = played[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        recording = ssp_iteration.play_by(Recording(), last_request(store, "r"), {})
    environment = environment_of(recording, "r")
    assert {task["reference"] for task in environment.tasks} == {"Alba"}
    assert environment.scorer.compare is equal


def test_a_pilot_goes_through_every_role_and_trains_nothing(played, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = str(any_text_model(tmp_path / "model"))
    corpus = str(played[0].root.parent / "towns.jsonl")
    settings = {**SETTINGS, "models.base": model, "corpus": corpus}
    request = Request(flow="ssp-iteration", profile="smollm2", run="r", overrides=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(Speaker()), patch)
        notes = play_pilot(ssp_iteration, request)
        cfg = profile.load(Config, "smollm2", request.settings)
        signals = measure(store, "r", cfg, notes)
    assert notes.stopped is None and len(notes.updates) == 1
    assert {role.name for role in signals.roles} == {"proposer", "checker", "solver"}
    assert not list(store.tables("r", UPDATES))
