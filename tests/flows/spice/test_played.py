"""SPICE's Algorithm 1, once over a scripted engine: one of three documents gets a valid question at
once, one late, one never.

Rewards and advantages are worked by hand from the script, section 2 of arXiv 2510.24684 and the
profile's sizes: groups of 6 from up to 24 attempts, and 8 answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from flows.spice.flow import spice_iteration
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
    "iterations": 1,
    "steps": 1,
    "documents_per_step": 3,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "dialogues.prompts": "english",
    "dialogues.document_tokens": 512,
    "dialogues.choice_tokens": 256,
    "dialogues.response_tokens": 512,
    "update.max_completion_tokens": 512,
    "evaluation.benchmark": "none",
    "probes.checkpoints": [],
}
CHOICE = (
    '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer"}'
)
INVALID = (  # used in turn
    "I would rather not.",
    '{"question": "What is 7 + 5?", "answer": "a dozen", "answer_type": "Integer"}',
    '{"question": "What is 7 + 5?", "answer_type": "Integer"}',
    '{"question": "What is 7 +...',
    "<think>{}</think>",
    "",
)


class Roles:
    """Replies by role; counts the attempts about each document."""

    def __init__(self) -> None:
        self.choices = Counter[str]()
        self.attempts = Counter[str]()

    def say(self, asked: Asked) -> str | None:
        if asked.template == "reasoner":
            return rf"First \boxed{{5}}, so \boxed{{{12 if asked.sample % 2 else 13}}}"
        document = found(r"In (d\d)", asked)
        if asked.template == "choose":
            self.choices[document] += 1
            return "Hm." if (document, self.choices[document]) == ("d2", 1) else CHOICE
        number = self.attempts[document]
        self.attempts[document] += 1
        if (document == "d0" and number % 2 == 0) or (document, number) == ("d1", 14):
            question = {
                "question": f"What is 7 + 5, asked of {document}?",
                "answer": 12,
                "answer_type": "Integer",
            }
            return f"<think>Seven and five.</think> {json.dumps(question)}"
        return INVALID[number % len(INVALID)]


def found(pattern: str, asked: Asked) -> str:
    match = re.search(pattern, asked.text)
    assert match, f"{asked.template}: {asked.text}"
    return match[1]


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Store, Script]:
    folder = tmp_path_factory.mktemp("spice")
    script = Script(Roles().say)
    rows = [
        {"id": f"d{i}", "title": f"Title {i}", "text": f"In d{i} seven and five make twelve."}
        for i in range(3)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(script, patch)
        settings = {**SETTINGS, "models.base": model, "engine.model": model}
        spice_iteration("micro", "r", settings, str(folder / "corpus.jsonl"))
    return Store(folder / "store"), script


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_attempts_go_on_in_growing_rounds_until_a_question_is_valid(played) -> None:
    made = (
        "select document_id, count(*), count(text) from tasks group by document_id order by"
        " document_id"
    )
    assert rows(played, made) == [
        ("d0", 6, 3),
        ("d1", 6 + 6 + 12, 1),
        ("d2", 5 + 6 + 12, 0),  # its first choice of a format could not be read
    ]


def test_a_group_has_six_attempts_and_one_of_its_questions_is_drawn(played) -> None:
    reasons = (
        "select document_id, coalesce(reason, 'kept'), count(*) from selections where label is null"
        " group by all"
    )
    assert {(document, reason): n for document, reason, n in rows(played, reasons)} == {
        ("d0", "kept"): 1,
        ("d0", "another question of its document is drawn"): 2,
        ("d0", "invalid question"): 3,
        ("d1", "kept"): 1,
        ("d1", "invalid question"): 5,
        ("d2", "invalid question"): 6,
    }


def test_both_roles_learn_in_one_update_each_from_its_own_groups(played) -> None:
    advantages = """
        select rollouts.role, round(batches.advantage, 4), count(*)
        from batches
        join rollouts using (run, rollout_id)
        group by all
    """
    # d0: three at 1 (half of the answers are right) and three at -0.1; d1: one at 1 and five at
    # -0.1; d2: six at -0.1
    assert {(role, advantage): n for role, advantage, n in rows(played, advantages)} == {
        ("challenger", 0.55): 3,
        ("challenger", -0.55): 3,
        ("challenger", 0.9167): 1,
        ("challenger", -0.1833): 5,
        ("challenger", 0.0): 6,
        ("reasoner", 0.5): 8,
        ("reasoner", -0.5): 8,
    }
    assert rows(played, "select role, metrics['grad_norm'] > 0 from updates") == [("policy", True)]


def test_a_reasoner_sees_the_question_alone(played) -> None:
    asked = [a.text for a in played[1].asked if a.template == "reasoner"]
    assert Counter(re.findall(r"asked of (d\d)", "".join(asked))) == {"d0": 3 * 8, "d1": 8}
    assert not any(
        word in text for text in asked for word in ("seven and five", "12", "Title", "Integer")
    )


def test_another_reward_of_invalid_questions_changes_rewards_only(played, tmp_path) -> None:
    assert changed_if(spice_iteration, played[0], tmp_path) == set()
    changed = changed_if(
        spice_iteration, played[0], tmp_path / "rho", **{"challenger.invalid_reward": -0.5}
    )
    assert changed == {"rewards.challenger", "advantages.challenger"}


def test_a_fork_shares_the_iteration_and_builds_the_next(played, tmp_path) -> None:
    assert first_stale_in_fork(spice_iteration, played[0], tmp_path) is None
    stale = first_stale_in_fork(spice_iteration, played[0], tmp_path, seed=5, iterations=2)
    assert stale and stale.startswith("f/iter-002/")
