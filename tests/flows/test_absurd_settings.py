"""Numbers that nobody means are refused at the prompt, in every setting of every method."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from flows.corpus.config import Config as Corpus
from flows.eapo.config import Config as Eapo
from flows.mae.config import Config as Mae
from flows.plan.preflight import Host, check_machine, crowded
from flows.rzero.config import Config as RZero
from flows.scope.config import Config as Scope
from flows.settings import profile
from flows.spell.config import Config as Spell
from flows.spice.config import Config as Spice

METHODS = (Scope, Spell, Spice, Eapo, Mae, RZero)
WHOLE = {  # what else a part needs that `micro` leaves out
    "api": {"api.url": "https://host/v1", "api.price_in": 1, "api.price_out": 1},
    "judge_engine": {
        "judge_engine.model": "m",
        "judge_engine.max_model_len": 512,
        "models.auditor": "m",
    },
}


def numbers(annotation: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The settings that are a single number, with None or without."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from numbers(field.annotation, (*path, name))
    elif annotation in (int, float):
        yield ".".join(path)
    elif type(None) in get_args(annotation):
        for part in get_args(annotation):
            yield from numbers(part, path)


def test_the_settings_are_walked_to_their_ends():
    found = set(numbers(Scope))
    assert {
        "iterations",
        "engine.threads",
        "solver.update.lora.rank",
        "api.max_cost",
        "monitor.max_falls",
    } <= found
    assert not {"resident_trainer", "models.base", "pool.window"} & found


@pytest.mark.parametrize(
    "model", [*METHODS, Corpus], ids=lambda model: model.__module__.split(".")[1]
)
@pytest.mark.parametrize("value", [True, "3", "nan", math.nan, math.inf, -math.inf], ids=repr)
def test_a_number_is_neither_true_nor_text_nor_endless(model, value):
    name = "english" if model is Corpus else "micro"
    for setting in sorted(set(numbers(model))):
        parts = WHOLE.get(setting.partition(".")[0], {})
        with pytest.raises(ValueError, match="with these settings is not valid"):
            profile.load(model, name, {**parts, setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("iterations", True, "iterations: must be a number, not true"),
        ("iterations", "3", 'iterations: must be a number, not "3"'),
        ("preflight", "no", 'preflight: must be true or false, not "no"'),
        ("pool.window", [0, True], "pool.window.1: must be a number, not true"),
        (
            "challenger.search_turns",
            {"1": False, "2": 1},
            "challenger.search_turns.1: must be a number, not false",
        ),
        (
            "monitor.max_malformed",
            80,
            "monitor.max_malformed: Input should be less than or equal to 1, not 80",
        ),
        ("monitor.max_falls", math.inf, "monitor.max_falls: must be a finite number, not inf"),
        (
            "solver.update.seed",
            -1,
            "solver.update.seed: Input should be greater than or equal to 0",
        ),
        (
            "solver.update.learning_rate",
            1e308,
            "solver.update.learning_rate: Input should be less than or equal to 1",
        ),
        ("solver.update.seed", 1 << 32, "solver.update.seed: Input should be less than 4294967296"),
    ],
)
def test_an_error_names_the_setting_and_what_was_given(setting, value, said):
    with pytest.raises(
        ValueError, match="profile 'micro' with these settings is not valid:"
    ) as problem:
        profile.load(Scope, "micro", {setting: value})
    assert said in str(problem.value)


@pytest.mark.parametrize("model", METHODS, ids=lambda model: model.__module__.split(".")[1])
def test_more_processes_than_cores_can_serve_are_refused_with_the_way_out(model, tmp_path):
    with pytest.raises(
        ValueError, match=r"num_engines is 100000, and this machine has \d+ cores: set it to \d+ or"
    ):
        check_machine(profile.load(model, "micro", {"num_engines": 100_000}), tmp_path)
    check_machine(
        profile.load(model, "micro", {"num_engines": 100_000, "preflight": False}), tmp_path
    )


def test_what_engines_on_cpus_take_is_counted():
    """8 processes for each of 2 cores. Two engines with caches of 256 MiB take 0.54 GB; a third,
    the judges', 0.8."""
    host = Host(cores=2, memory=600_000_000)
    assert crowded(profile.load(Scope, "micro", {"num_engines": 2}), host) == []
    judged = {"engine.kv_cache_bytes": 1 << 28, **WHOLE["judge_engine"]}
    (said,) = crowded(profile.load(Scope, "micro", judged), host)
    assert said.startswith(
        "the engines' caches need 1 GB of memory, there are 1: lower num_engines"
    )
    many = {"trainer_processes": 17, "match.processes": 16, "engine.threads": 18}
    said = crowded(profile.load(RZero, "micro", many), host)
    assert [line.partition(",")[0] for line in said] == [
        "trainer_processes is 17",
        "engine.threads is 18",
    ]


def test_attention_of_a_package_that_is_not_installed_is_refused(tmp_path):
    cfg = profile.load(Scope, "micro", {"solver.update.attention": "flash_attention_2"})
    with pytest.raises(
        ValueError, match=r"solver\.update\.attention .*flash-attn, which is not installed"
    ):
        check_machine(cfg, tmp_path)
