"""Questions that the policy does not write: of a file without answers, and of another model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from flows.app.command.cli import main
from flows.corpus.flow import prepare_corpus
from flows.settings import profile
from flows.spell.config import Config
from flows.spell.flow import spell_iteration
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.schemas import BATCHES
from warehouse.store import Store

TOWNS = {"Arvel": "salt", "Borin": "wool", "Cadra": "glass", "Dorven": "tin"}
SETTINGS: dict[str, Any] = {
    "iterations": 1,
    "steps": 1,
    "group_size": 4,
    "task_types": ["general_qa"],
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.input_tokens": 2048,
    "dialogues.response_tokens": 256,
    "questioner.memory_pairs": 0,
    "questioner.grounding_filter": False,
    "questioner.trained": False,
    "verifier.enabled": False,
    "sampling.groups": 4,
    "sampling.clusters_per_round": 4,
    "sampling.max_rounds": 1,
    "sampling.short_batch": "fewer",
    "evaluation.benchmark": "none",
    "evaluation.probe_answers": 0,
    "evaluation.input_tokens": [2048],
    "engine.max_model_len": 4096,
}
# what the four answers to each question are: a majority, another one, a tie, and no two alike
SAID = {
    "Arvel": ["salt", "salt", "salt", "ore"],
    "Borin": ["fish", "wool", "fish", "fish"],
    "Cadra": ["glass", "sand", "glass", "sand"],
    "Dorven": ["a", "b", "c", "d"],
}

PAID = "select task_id, sum(reward) from rewards where label like 'responder%' group by task_id"


def say(asked: Asked) -> str:
    (town,) = (town for town in TOWNS if town in asked.text)
    if asked.template.startswith("questioner"):
        return json.dumps({"question": f"What does {town} trade in?", "answer": TOWNS[town]})
    return f"The answer is {SAID[town][asked.sample]}."


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    any_text_model(tmp_path / "model")
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    perform(Script(say), monkeypatch)
    return tmp_path


def play(site: Path, **settings: Any) -> None:
    own = {"models.base": str(site / "model"), "engine.model": str(site / "model")}
    spell_iteration("micro-rlvr", "r", {**SETTINGS, **own, **settings})


def rows(site: Path, sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(site / "store", sql)]


def questions(site: Path, answers: dict[str, str]) -> str:
    path = site / "mine.csv"
    lines = [
        f'"What does {town} trade in?","{town} trades in {good}.",{answers.get(town, "")}'
        for town, good in TOWNS.items()
    ]
    path.write_text("question,context,answer\n" + "\n".join(lines) + "\n")
    return str(path)


def test_without_answers_the_majority_of_a_questions_answers_is_its_reference(site):
    play(site, given=questions(site, {}))
    labels = rows(site, "select task_id, answer, tied from labels order by task_id")
    assert labels[:3] == [
        ("mine-1", "salt", False),
        ("mine-2", "fish", False),
        ("mine-3", "glass", True),
    ]
    paid = dict(rows(site, PAID))
    # of four answers alike, three, two and one
    assert paid == {"mine-1": 3.0, "mine-2": 3.0, "mine-3": 2.0, "mine-4": 1.0}
    assert rows(site, "select count(*) from updates") == [(1,)]


def test_with_answers_they_are_the_references(site):
    play(site, given=questions(site, TOWNS))
    assert rows(site, "select * from labels") == []
    paid = dict(rows(site, PAID))
    assert paid == {"mine-1": 3.0, "mine-2": 1.0, "mine-3": 2.0, "mine-4": 0.0}


def test_answers_can_be_ignored(site):
    play(site, given=questions(site, TOWNS), given_answers=False)
    paid = dict(rows(site, PAID))
    assert paid == {"mine-1": 3.0, "mine-2": 3.0, "mine-3": 2.0, "mine-4": 1.0}


def test_answers_that_are_ignored_reward_nothing_even_if_a_question_has_several(site):
    """Each question accepts what one of its minority answers says; the majority decides alone."""
    path = site / "mine.jsonl"
    lines = [
        {"question": f"What does {town} trade in?", "context": f"{town} trades.", "answers": good}
        for town, good in {
            "Arvel": ["ore", "the ore"],
            "Borin": ["wool", "a wool"],
            "Cadra": ["sand", "the sand"],
            "Dorven": ["d", "the d"],
        }.items()
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    play(site, given=str(path), given_answers=False)
    labels = dict(rows(site, "select task_id, answer from labels"))
    assert [labels[f"mine-{number}"] for number in (1, 2)] == ["salt", "fish"]
    paid = dict(rows(site, PAID))
    assert paid == {"mine-1": 3.0, "mine-2": 3.0, "mine-3": 2.0, "mine-4": 1.0}
    known = "select count(*) from tasks where label like 'round%' and reference is not null"
    assert rows(site, known) == [(0,)]


def test_a_file_with_answers_to_some_questions_is_refused(site):
    with pytest.raises(ValueError, match="1 of 4 questions have an answer: give all of them one"):
        play(site, given=questions(site, {"Arvel": "salt"}))


def prepare(site: Path) -> None:
    """The corpus `towns`: a document about each."""
    corpus = site / "towns.jsonl"
    texts = ({"id": t, "title": t, "text": f"{t} trades in {g}."} for t, g in TOWNS.items())
    corpus.write_text("\n".join(map(json.dumps, texts)))
    prepare_corpus("passages", "towns", {"quality.min_chars": 1}, str(corpus))


def test_another_model_asks_and_only_the_policy_is_trained(site):
    prepare(site)
    writer = str(shutil.copytree(site / "model", site / "writer"))
    play(
        site,
        given=None,
        world=None,
        corpus="towns",
        **{"models.questioner": writer, "asking.prompts": "english", "asking.response_tokens": 64},
    )
    asked = rows(site, "select distinct role, policy from rollouts where run = 'r' order by role")
    assert asked == [("questioner", "writer"), ("responder", "model")]
    assert rows(site, "select count(*) from tasks where run = 'r' and text is not null") == [(4,)]
    trained = rows(site, "select distinct role from lineage where run = 'r'")
    assert trained == [("responder",)]


def test_where_any_readable_answer_is_right_the_same_questions_need_their_documents(site):
    """Without documents the first answers are salt, fish, glass and a: two are the references."""
    prepare(site)
    own = {"given": None, "world": None, "corpus": "towns", "questioner.grounding_filter": True}
    play(site, **own, **{"controls.readable": True})
    sql = (
        "select sum(components['grounded']) from rewards where run = 'r' and label like 'question%'"
    )
    assert rows(site, sql) == [(2.0,)]


def test_votes_of_a_verifier_that_is_not_trained_are_no_part_of_an_update(site, monkeypatch):
    perform(
        Script(lambda asked: "[[NO]]" if asked.template == "verifier" else say(asked)), monkeypatch
    )
    prepare(site)
    own = {"given": None, "world": None, "corpus": "towns", "verifier.enabled": True}
    play(site, **own, **{"verifier.trained": False})
    store = Store(site / "store")
    assert rows(site, "select count(*) > 0 from rollouts where role = 'verifier'") == [(True,)]
    [batch] = [table for table in store.tables("r") if table.schema is BATCHES]
    assert "responder-1" in str(batch.recipe) and "verifier" not in str(batch.recipe)


def test_nobody_measures_how_hard_questions_without_answers_are(site):
    play(site, given=questions(site, {}), **{"evaluation.probe_answers": 2})
    assert rows(site, "select count(*) from rollouts where phase = 'probe'") == [(0,)]


def test_a_questioner_that_is_another_model_is_not_trained():
    with pytest.raises((ValidationError, ValueError), match=r"set questioner\.trained = false"):
        profile.load(Config, "smollm2", {"models.questioner": "x", "questioner.trained": True})


def ask(site: Path, *options: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code, output and questions of `selfplay ask towns`."""
    out = site / "questions.jsonl"
    command = ["ask", "towns", "--with", str(site / "model"), "-o", str(out)]
    settings = {"models.base": str(site / "model"), "sampling.clusters_per_round": 4}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    told = CliRunner().invoke(main, [*command, *options])
    lines = out.read_text().splitlines() if out.exists() else []
    return told.exit_code, told.output, [json.loads(line) for line in lines]


def test_a_model_writes_a_file_of_questions_that_can_be_trained_on(site):
    prepare(site)
    code, told, written = ask(site, "--count", "4")
    assert code == 0, told
    assert {(row["question"], row["answer"], row["context"]) for row in written} == {
        (f"What does {town} trade in?", good, f"[{town}] {town} trades in {good}.")
        for town, good in TOWNS.items()
    }
    assert "4 questions from 4 replies" in told
    play(site, given=str(site / "questions.jsonl"))
    assert query(site / "store", "select count(*) as n from updates where run = 'r'") == [{"n": 1}]


def test_another_model_than_the_profiles_is_said_to_use_no_gpu(site):
    prepare(site)
    other = shutil.copytree(site / "model", site / "other")
    _, told, _ = ask(site, "--count", "4", "--set", f"models.base={other}")
    model = site / "model"
    assert f"no GPU is used: profile smollm2 loads {model} on the CPU; --profile names" in told
    _, told, _ = ask(site, "--count", "4", "--force", "--run", "own")
    assert "no GPU is used" not in told


def test_what_is_asked_again_or_does_not_stand_in_the_text_is_left_out_and_counted(
    site, monkeypatch
):
    def writer(asked: Asked) -> str:
        if "Arvel" in asked.text:
            return json.dumps({"question": "What does Arvel trade in?", "answer": "gold"})
        return "I would rather not."

    perform(Script(writer), monkeypatch)
    prepare(site)
    code, told, written = ask(site, "--count", "4")
    assert (code, written) == (1, [])
    assert "the answer is not in the text" in told and "no JSON object" in told
    perform(Script(say), monkeypatch)
    code, told, written = ask(site, "--count", "9", "--run", "again")
    assert code == 1 and len(written) == 4  # the second round asks the same questions
    assert "asked before" in told
    assert (
        "fewer than the 9 that were wanted, because fewer than 5% of its last replies gave" in told
    )
    code, told, _ = ask(site)
    assert code == 1 and "exists: --force overwrites it" in told


def test_held_out_questions_are_about_documents_of_their_own_and_say_who_wrote_them(site):
    """Half of the documents, by a hash: Arvel .83, Borin .36, Cadra .38, Dorven .56."""
    prepare(site)
    test = site / "test.jsonl"
    code, told, written = ask(
        site, "--count", "2", "--held-out", str(test), "--held-out-count", "2"
    )
    assert code == 0, told
    held_out = [json.loads(line) for line in test.read_text().splitlines()]
    assert {row["answer"] for row in written} == {"salt", "tin"}
    assert {row["answer"] for row in held_out} == {"wool", "glass"}
    assert {row["written_by"] for row in [*written, *held_out]} == {"model"}
    assert "Check these held-out questions: " in told
    play(site, given=str(site / "questions.jsonl"), **{"evaluation.benchmark": str(test)})
    scored = rows(site, "select distinct n from evaluations where run = 'r' and benchmark = 'test'")
    assert scored == [(2,)]


IN_ENGLISH = (
    *("--set", "dialogues.prompts=english"),
    *("--set", "dialogues.chat_template=model"),
    *("--set", "dialogues.stop=[]"),
    *("--set", "dialogues.response_tokens=64"),
)


def test_a_strong_model_answers_its_own_questions_and_equal_answers_stay(site):
    """The rule finds Arvel's and Cadra's first answers equal to the questioner's: salt, glass."""
    prepare(site)
    code, told, written = ask(site, "--count", "4", "--twice", *IN_ENGLISH)
    assert code == 1 and "its writer answers otherwise" in told
    assert {(row["answer"], row["responder_answer"]) for row in written} == {
        ("salt", "salt"),
        ("glass", "glass"),
    }
    play(site, given=str(site / "questions.jsonl"), **{"sampling.groups": 2})
    assert query(site / "store", "select count(*) as n from updates where run = 'r'") == [{"n": 1}]


def test_another_model_says_whether_both_answers_are_equal(site, monkeypatch):
    """It holds fish for wool, and nothing else for equal."""
    prepare(site)
    judge = str(shutil.copytree(site / "model", site / "judge"))

    def said(asked: Asked) -> str:
        if asked.template.startswith("verifier"):
            return "[[YES]]" if "Borin" in asked.text else "[[NO]]"
        return say(asked)

    perform(Script(said), monkeypatch)
    _, told, written = ask(site, "--count", "1", "--twice", "--judge", judge, *IN_ENGLISH)
    assert [(row["answer"], row["responder_answer"]) for row in written] == [("wool", "fish")], told
    assert rows(site, "select distinct policy from rollouts where role = 'judge'") == [("judge",)]
    code, told, _ = ask(site, "--judge", judge, "--force")
    assert code == 1 and "--judge compares two answers: add --twice" in told
