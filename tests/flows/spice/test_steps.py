"""A step of SPICE over a scripted engine: rounds of attempts, who asks, who sees what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from flows.blocks.questions import answer
from flows.run import Player, Run
from flows.settings import profile
from flows.spice.config import Config
from flows.spice.flow import LEFT_OUT, play
from flows.spice.roles import Roles
from flows.spice.steps import Spice, ask_questions, sample_documents
from tasks.keep import keep
from tasks.models.engine import Policy
from tasks.stage import stage
from tests.support.rows import publish, turn
from warehouse.schemas import DOCUMENTS

LEARNING, STRONG = (
    Policy(id=name, weights=name, content_hash=name) for name in ("learning", "strong")
)
SECRET = "seven and five make twelve"
# about which the ledgers know nothing
ASKS_ONE_THING = {"monitor.max_copy": None, "monitor.max_gate_leak": None}


@dataclass
class ScriptedFleet:
    """Gives `reply(kind, document, number)` to the number-th prompt about a document; remembers
    all prompts."""

    reply: Callable[[str, str, int], str]
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def roll_out(self, prompts: list, policy: Policy, group_size: int, **_: Any) -> Iterator[dict]:
        for prompt in prompts:
            text = prompt["messages"][0]["content"]
            role = prompt["template"]
            self.seen.append((role, policy.id, text))
            for sample in range(group_size):
                about = prompt["document_id"] or prompt["task_id"]
                said = self.reply(role, about, self.counts[role, about])
                self.counts[role, about] += 1
                yield rollout(prompt, sample, policy, said)


def rollout(prompt: dict, sample: int, policy: Policy, said: str) -> dict:
    cut = said.endswith("...")
    return {
        "rollout_id": f"{prompt['prompt_id']}-{sample}",
        "prompt_id": prompt["prompt_id"],
        "role": prompt["role"],
        "sample": sample,
        "policy": policy.id,
        "policy_hash": policy.content_hash,
        "seed": 0,
        "finish_reason": "length" if cut else "final",
        "reply": said,
        "num_turns": 1,
        "num_searches": 0,
        "num_sampled_tokens": 1,
        "turns": [turn(said)],
    }


CHOICE = (
    '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer"}'
)
QUESTION = json.dumps({"question": "What is 7 + 5?", "answer": 12, "answer_type": "Integer"})


def script(role: str, document: str, number: int) -> str:
    """d0 gets a valid question at once, d1 at the 15th attempt, d2 never; half of the answers
    are right."""
    if role == "choose":
        return CHOICE
    if role == "reasoner":
        return r"\boxed{12}" if number % 2 else r"\boxed{13}"
    valid = (document == "d0" and number % 2 == 0) or (document == "d1" and number == 14)
    return QUESTION if valid else "I would rather not"


@stage(DOCUMENTS)
def three_documents() -> Iterator[dict]:
    for i in range(3):
        yield {
            "document_id": f"d{i}",
            "title": f"title {i}",
            "text": SECRET,
            "source": "test",
            "num_chars": 3,
        }


def prepare(place, reply=script, **changed: Any) -> tuple[Spice, ScriptedFleet, ScriptedFleet]:
    settings = {
        "dialogues.prompts": "english",
        "documents_per_step": 3,
        "models.base": "data/micro/base",
    }
    cfg = profile.load(Config, "micro", {**settings, **ASKS_ONE_THING, **changed})
    fleet = ScriptedFleet(reply)
    other = ScriptedFleet(reply)
    machines: Any = SimpleNamespace(
        serving=lambda policy, on_judge_engine: other if on_judge_engine else fleet,
        serving_player=lambda start: SimpleNamespace(config=cfg.engine),
        trainer=None,
        release_engines=lambda: None,
        free_superseded=lambda *_: None,
    )
    models = {"base": LEARNING} | ({"challenger": STRONG} if cfg.models.challenger else {})
    run = Run(cfg, place, models, machines)
    return Spice(run, Roles(cfg), (three_documents(place.phase("corpus")),)), fleet, other


def asked(place, reply=script, **changed: Any):
    spice, fleet, other = prepare(place, reply, **changed)
    samples = sample_documents(spice, place, 0)
    attempts = ask_questions(spice, place, spice.run.player("policy"), samples)
    return spice, attempts, fleet, other


def rows(tables) -> list[dict]:
    return [row for table in tables for row in table.rows()]


def test_attempts_go_on_in_growing_rounds_for_documents_without_a_valid_question(place):
    _, attempts, fleet, _ = asked(place)
    made = Counter(row["document_id"] for row in rows(attempts.tasks))
    assert made == {"d0": 6, "d1": 6 + 6 + 12, "d2": 24}
    assert [table.num_rows for table in attempts.tasks] == [18, 12, 24]
    valid = Counter(row["document_id"] for row in rows(attempts.tasks) if row["text"])
    assert valid == {"d0": 3, "d1": 1}
    assert Counter(role for role, _, _ in fleet.seen) == {
        "choose": 3 + 2 + 2,
        "free_form": 3 * 6 + 2 * 6 + 2 * 12,
    }


def test_a_choice_that_cannot_be_read_costs_its_document_one_attempt(place):
    def shy(role: str, document: str, number: int) -> str:
        return "hm" if role == "choose" and number == 0 else script(role, document, number)

    _, attempts, _, _ = asked(place, shy)
    assert Counter(row["document_id"] for row in rows(attempts.tasks[:1])) == {
        "d0": 5,
        "d1": 5,
        "d2": 5,
    }
    assert Counter(row["document_id"] for row in rows(attempts.tasks[:2])) == {
        "d0": 5,
        "d1": 11,
        "d2": 11,
    }


def test_attempts_of_one_document_may_choose_different_formats(place):
    def either(role: str, document: str, number: int) -> str:
        letters = '{"suitable_for_mcq": true, "suitable_for_free_form": false}'
        return letters if role == "choose" and number % 2 else script(role, document, number)

    _, attempts, _, _ = asked(place, either, unread="warn")
    first = Counter((row["document_id"], row["task_type"]) for row in rows(attempts.tasks[:1]))
    assert first == {(d, t): 3 for d in ("d0", "d1", "d2") for t in ("Integer", "multiple_choice")}


def test_groups_have_g_attempts_and_the_reasoner_never_sees_a_document_or_a_reference(place):
    spice, attempts, fleet, _ = asked(place)
    left_out = keep(place, LEFT_OUT, tasks=attempts.tasks, group_size=6, seed=0, label="left-out")
    drawn = {t["task_id"]: t for t in rows(attempts.tasks)} | {
        r["task_id"]: None for r in left_out.rows()
    }
    groups = Counter((t["document_id"], t["text"] is not None) for t in drawn.values() if t)
    assert groups == {
        ("d0", True): 3,
        ("d0", False): 3,
        ("d1", True): 1,
        ("d1", False): 5,
        ("d2", False): 6,
    }
    fleet.seen.clear()
    about: Any = {"comparing": spice.run.cfg.match, "tasks": attempts.tasks, "left_out": left_out}
    given = answer(
        spice.run, place, spice.roles.reasoner, spice.run.player("policy"), group_size=4, **about
    )
    prompts = [text for _, _, text in fleet.seen]
    assert len(prompts) == 4 and given.answers.num_rows == 16
    assert all("What is 7 + 5?" in text for text in prompts)
    assert not any(word in text for text in prompts for word in (SECRET, "12", "title", "Integer"))
    assert Counter(r["matched"] for r in given.matches.rows()) == {True: 8, False: 8}


def test_the_document_is_what_the_challenger_sees_unless_it_is_ungrounded(place):
    *_, fleet, _ = asked(place)
    assert all(SECRET in text for _, _, text in fleet.seen)
    *_, fleet, _ = asked(place.step(5), **{"challenger.grounded": False})
    assert fleet.seen and not any(SECRET in text for _, _, text in fleet.seen)


@pytest.mark.parametrize(
    ("changed", "template"),
    [
        ({"challenger.formats": ["multiple_choice"]}, "multiple_choice"),
        (
            {"challenger.formats": ["free_form"], "challenger.answer_types": ["Integer"]},
            "free_form",
        ),
    ],
)
def test_where_there_is_nothing_to_choose_nothing_is_chosen(place, changed, template):
    *_, fleet, _ = asked(place, **changed, **{"challenger.attempts": 6, "unread": "warn"})
    assert {role for role, _, _ in fleet.seen} == {template}


def test_one_format_is_the_only_one_that_can_be_chosen(place):
    def letters(role: str, document: str, number: int) -> str:
        return (
            '{"suitable_for_mcq": true, "suitable_for_free_form": false}'
            if role == "choose"
            else QUESTION
        )

    changed = {"challenger.formats": ["free_form"], "unread": "warn"}
    _, attempts, fleet, _ = asked(place, letters, **changed)
    assert {role for role, _, _ in fleet.seen} == {"choose"} and rows(attempts.tasks) == []


def test_a_fixed_challenger_is_the_base_and_a_strong_one_speaks_from_its_own_engine(place):
    base = {"models.base": "data/micro/base"}
    spice, fleet, other = prepare(place, **base, **{"challenger.fixed": True})
    trained = Player("policy", Policy(id="trained", weights="w", content_hash="w"))
    ask_questions(spice, place, trained, sample_documents(spice, place, 0))
    assert {policy for _, policy, _ in fleet.seen} == {"learning"} and not other.seen
    strong = {"challenger.fixed": True, "models.challenger": "data/micro/grader"}
    spice, fleet, other = prepare(place.step(6), **base, **strong)
    ask_questions(spice, place.step(6), trained, sample_documents(spice, place.step(6), 0))
    assert {policy for _, policy, _ in other.seen} == {"strong"} and not fleet.seen


def test_a_mix_of_corpora_gives_each_its_share_of_a_step(place):
    spice, *_ = prepare(place, corpora={"a": 0.67, "b": 0.33})
    spice = replace(spice, corpora=(*spice.corpora, three_documents(place.phase("other"))))
    assert [table.num_rows for table in sample_documents(spice, place, 0)] == [2, 1]
    seen = [
        r["document_id"]
        for n in range(3)
        for r in sample_documents(spice, place.step(n + 5), n)[1].rows()
    ]
    assert sorted(seen) == ["d0", "d1", "d2"]


def test_corpora_of_one_length_are_drawn_from_in_orders_of_their_own(place):
    spice, *_ = prepare(place, corpora={"a": 0.5, "b": 0.5}, documents_per_step=6)
    spice = replace(spice, corpora=(*spice.corpora, three_documents(place.phase("other"))))
    one, other = (table.rows() for table in sample_documents(spice, place, 0))
    assert [r["document_id"] for r in one] != [r["document_id"] for r in other]
    assert not {r["sample_id"] for r in one} & {r["sample_id"] for r in other}


def test_a_step_needs_as_many_documents_as_the_corpus_has(place):
    spice, *_ = prepare(place, documents_per_step=4)
    with pytest.raises(ValueError, match="has 3 documents, a step needs 4"):
        sample_documents(spice, place, 0)


def test_the_documents_of_a_step_are_all_different_where_one_lap_ends(place):
    """Steps of two of three documents: every second one ends a lap."""
    spice, *_ = prepare(place, documents_per_step=2)
    for number in range(12):
        [samples] = sample_documents(spice, place.step(number + 1), number)
        assert len({r["document_id"] for r in samples.rows()}) == 2


def trained_on(place, monkeypatch, settings: list | None = None, **changed: Any) -> list[dict]:
    """The batch of one step; appends the update's settings to `settings`."""
    batches: list[dict] = []

    def learn_nothing(step, rows_, **given: Any):
        batches.extend(rows_.rows())
        (settings if settings is not None else []).append(given["settings"])
        return publish(step, "updates")

    monkeypatch.setattr("flows.run.update", learn_nothing)
    monkeypatch.setattr("flows.run.updated_policy", lambda table: (LEARNING, None))
    spice, *_ = prepare(place, **changed)
    play(spice, place, spice.run.player("policy"), 0)
    return batches


def test_both_roles_are_trained_on_in_one_batch_with_advantages_of_their_own_groups(
    place, monkeypatch
):
    batch = trained_on(place, monkeypatch)
    # three groups of questions, and the answers to one question of d0 and of d1
    assert len(batch) == 3 * 6 + 2 * 8
    advantages = Counter(round(row["advantage"], 4) for row in batch)
    # d0: three at 1 and three at -0.1; d1: one at 1 and five at -0.1; d2: six at -0.1; answers:
    # half are right
    assert advantages == {0.55: 3, -0.55: 3, 0.9167: 1, -0.1833: 5, 0.0: 6, 0.5: 8, -0.5: 8}


def test_an_optimizer_step_may_have_so_many_trajectories_in_a_random_order(place, monkeypatch):
    """34 trajectories make three steps of about 11. One step on all of them is on-policy."""
    given: list = []
    whole = trained_on(place, monkeypatch, given)
    parts = trained_on(place.step(7), monkeypatch, given, trajectories_per_update=11)
    assert [(s.optimizer_steps, s.on_policy) for s in given] == [(1, True), (3, False)]
    assert sorted(row["advantage"] for row in parts) == sorted(row["advantage"] for row in whole)
    assert [row["advantage"] for row in parts] != [row["advantage"] for row in whole]


def test_a_fixed_challenger_is_not_trained(place, monkeypatch):
    batch = trained_on(place, monkeypatch, **{"challenger.fixed": True})
    assert Counter(row["advantage"] for row in batch) == {0.5: 8, -0.5: 8}
