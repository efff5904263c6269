"""Which roles may be constrained by structured output, and what is refused."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.eapo.config import Config as Eapo
from flows.eapo.roles import Roles as EapoRoles
from flows.mae.config import Config as Mae
from flows.scope.config import Config as Scope
from flows.scope.readers import read_rubric
from flows.scope.roles import Roles as ScopeRoles
from flows.settings import profile
from flows.settings.profile import MethodSettings
from flows.spell.config import Config as Spell
from flows.spell.roles import Roles as SpellRoles
from tasks.batch import sampled_at
from tasks.readers.lines import VOTE_FORM
from warehouse.store import Table


def load(model: type[MethodSettings], **changes: Any) -> Any:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    return profile.load(model, "smollm2", settings)


def test_a_frozen_judge_is_held_to_a_word_and_the_solver_to_nothing() -> None:
    roles = ScopeRoles(load(Scope, structured=["gate", "grade"]))
    assert roles.gates.sampling.form == roles.grader.sampling.form == VOTE_FORM
    assert roles.rubric_writer.sampling.form is None
    trained = (roles.challenger, roles.solver)
    outside = (roles.estimator, roles.screener, roles.evaluated)
    assert [role.sampling.form for role in (*trained, *outside)] == [None] * 5
    judge = EapoRoles(load(Eapo, structured=["judge"], outcome="judge")).judge
    assert judge is not None and judge.sampling.form == VOTE_FORM


def test_another_model_that_asks_is_held_to_a_question_with_its_answer() -> None:
    cfg = load(Spell, structured=["questioner"], models__questioner="another")
    roles = SpellRoles(cfg)
    assert roles.questioner.sampling.form and "Answer:" in roles.questioner.sampling.form
    assert roles.responder.sampling.form is None


@pytest.mark.parametrize(
    ("model", "settings", "allowed"),
    [
        (Scope, {"structured": ["solver"]}, "gate, rubric, grade"),
        (Spell, {"structured": ["questioner"]}, "none with these settings"),
        (Spell, {"structured": ["verifier"], "models__judge": "another"}, "judge"),
        (Eapo, {"structured": ["reward_model"]}, "none with these settings"),
        (Eapo, {"structured": ["reward_model"], "outcome": "judge"}, "judge"),
        (Mae, {"structured": ["judge"]}, "none with these settings"),
    ],
)
def test_a_role_that_is_trained_is_refused_and_the_others_are_named(
    model: type[MethodSettings], settings: dict[str, Any], allowed: str
) -> None:
    name = settings["structured"][0]
    with pytest.raises(ValueError, match=f"structured names '{name}'") as problem:
        load(model, **settings)
    assert f"allowed are {allowed}" in str(problem.value)


def test_prompts_whose_verdicts_follow_thoughts_have_no_form() -> None:
    with pytest.raises(ValueError, match="structured names 'grade'"):
        profile.load(Scope, "micro", {"structured": ["grade"]})


@pytest.mark.parametrize("most", [2, 4])
def test_a_rubric_of_the_form_has_as_many_criteria_as_it_may(most: int) -> None:
    cfg = load(Scope, structured=["rubric"], judge__min_criteria=2, judge__max_criteria=most)
    form = ScopeRoles(cfg).rubric_writer.sampling.form
    assert form is not None
    weights = cfg.judge.priority_weights
    for number in range(1, 6):
        reply = "\n-".join(f" Names fact {n}." for n in range(number)) + "\n\n"
        fits = re.fullmatch(form, reply) is not None
        assert fits == (2 <= number <= most)
        if fits:
            read = read_rubric(reply, 2, most, weights, in_lines=True)
            assert len(read) == number


def test_an_update_refuses_replies_that_were_held_to_a_form() -> None:
    def rollouts(**sampling: Any) -> Table:
        recipe = {"params": {"sampling": {"temperature": 1.0, **sampling}}}
        return cast(Table, SimpleNamespace(recipe=recipe))

    assert sampled_at([rollouts()]) == 1.0
    with pytest.raises(ValueError, match="structured output constrained: remove their role"):
        sampled_at([rollouts(), rollouts(form="[AB]")])
