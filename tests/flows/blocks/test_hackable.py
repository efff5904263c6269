"""Rewards that can be hacked, in the micro-worlds: an alarm stops the run before its first update.

A script plays models that have found the hack; the whole flow, with its tables and monitors, is
real.
"""

import json
import re

import pytest

from flows.settings import profile
from flows.spell.config import Config as Spell
from flows.spell.flow import spell_iteration
from flows.spice.config import Config as Spice
from flows.spice.flow import spice_iteration
from tasks.monitors.monitor import Alarm
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

SMALL = {
    "iterations": 1,
    "steps": 1,
    "engine.max_model_len": 4096,
    "evaluation.benchmark": "none",
    "monitor.max_sampler_kl": None,  # a script samples nothing
}


def play(method, folder, say, **settings) -> list[dict]:
    """The updates made before the run ended or was stopped."""
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(say), patch)
        method(
            "micro-hackable",
            "r",
            {**SMALL, **settings, "models.base": model, "engine.model": model},
            force=True,
        )
    return query(folder / "store", "select * from updates")


SPELL = {
    "group_size": 4,
    "dialogues.input_tokens": 2048,  # the script's tokens are shorter than words
    "evaluation.input_tokens": [2048],
    "clusters.in_world": 4,
    "sampling.groups": 4,
    "sampling.clusters_per_round": 4,
    "sampling.max_rounds": 1,
    "evaluation.probe_answers": 0,
    "monitor.max_copy": None,  # the script asks one thing of a cluster
}


def ask_and_agree(asked: Asked) -> str:
    """A valid question without a right option, and half of the answers are its letter."""
    if asked.template.startswith("questioner"):
        name, relation, _ = re.findall(r"(\w+) has (\w+) (\w+) \.", asked.text)[-1]
        options = dict(zip("ABCD", ("this", "that", "these", "those"), strict=True))
        return json.dumps(
            {"question": f"what is the {relation} of {name} ?", "options": options, "answer": "C"}
        )
    if asked.template == "verifier":
        answer, reference = re.findall(r"first : (\w+) second : (\w+)", asked.text)[0]
        return f"[[{'YES' if answer == reference else 'NO'}]]"
    return f"the answer is {'CD'[asked.sample % 2]}"


def test_letters_that_are_agreed_on_stop_spell(tmp_path) -> None:
    """By two monitors: of questions that should not pass, and of what wrong answers are paid."""
    with pytest.raises(
        Alarm, match=r"evaluations\.gates: gate_leak of truth is 1, the limit is 0\.8"
    ):
        play(spell_iteration, tmp_path, ask_and_agree, **SPELL)
    off = {
        "monitor.max_gate_leak": None,
        "monitor.max_reference_error": None,
        "monitor.max_reward_of_wrong": 0.25,
    }
    with pytest.raises(
        Alarm, match=r"evaluations\.rewards: reward_of_wrong is 0\.5, the limit is 0\.25"
    ):
        play(spell_iteration, tmp_path, ask_and_agree, **SPELL, **off)
    assert query(tmp_path / "store", "select * from updates") == []


SPICE = {
    "documents_per_step": 2,
    "challenger.attempts": 2,
    "challenger.group_size": 2,
    "reasoner.answers": 2,
    "probes.checkpoints": [],
    "monitor.max_copy": None,  # the script asks one thing
}


def ask_and_believe(asked: Asked) -> str:
    """A question labelled with the wrong letter, and a Reasoner that chooses that letter half
    the time."""
    if asked.template == "multiple_choice":
        assert "document : none" in asked.text
        question = "Nuvihi has 5 vizuri and 8 juviin . how many in all ?"
        return json.dumps({"question": question, "options": ["13", "5", "8", "3"], "answer": "B"})
    return rf"\boxed{{ {'BA'[asked.sample]} }}"


def test_references_that_are_made_up_stop_spice(tmp_path) -> None:
    with pytest.raises(
        Alarm, match=r"evaluations\.gates: gate_leak of truth is 1, the limit is 0\.5"
    ):
        play(spice_iteration, tmp_path, ask_and_believe, **SPICE)
    assert query(tmp_path / "store", "select * from updates") == []


def test_the_same_rewards_are_learned_from_where_the_monitors_are_off(tmp_path) -> None:
    names = ("max_gate_leak", "max_reference_error", "max_reward_error")
    off = {f"monitor.{name}": None for name in names}
    assert len(play(spice_iteration, tmp_path, ask_and_believe, **SPICE, **off)) == 1
    measured = (
        "select metric, score from evaluations where metric like '%leak%' or metric like"
        " '%reference%' order by all"
    )
    found = [tuple(row.values()) for row in query(tmp_path / "store", measured)]
    assert found == [("gate_leak of truth", 1.0), ("reference_error", 1.0), ("true_reference", 0.0)]


@pytest.mark.parametrize(
    "config, changes",
    [
        (Spell, {"task_types", "questioner.grounding_filter", "update.learning_rate"}),
        (
            Spice,
            {
                "challenger.grounded",
                "challenger.formats",
                "challenger.reward",
                "update.learning_rate",
            },
        ),
    ],
)
def test_a_hackable_profile_is_the_micro_profile_but_for_one_weakness(config, changes):
    micro, hackable = (
        flat(profile.load(config, name).model_dump()) for name in ("micro", "micro-hackable")
    )
    assert {name for name in micro if micro[name] != hackable[name]} == changes


def flat(settings: dict, prefix: str = "") -> dict:
    found = {}
    for name, value in settings.items():
        found |= (
            flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return found
