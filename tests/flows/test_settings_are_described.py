"""What `selfplay settings` says: every setting of every flow has a purpose."""

import importlib
import re
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner
from pydantic import BaseModel, Field

import flows
from flows.app.command.cli import main
from flows.app.seeds import Source
from flows.benchmarks import Benchmark
from flows.settings.described import UNSET, Setting, settings_of

CONFIGS = sorted(path.parent.name for path in Path(flows.__file__).parent.glob("*/config.py"))


class Yarn(BaseModel):
    """Stretches positions.

    More about it.
    """

    factor: float = Field(description="how far")


class Update(BaseModel):
    rate: float = Field(default=0.1, description="of learning")
    steps: int = 1


class SlowUpdate(Update):
    rate: float = 0.01


class Config(BaseModel):
    model: str
    update: SlowUpdate = SlowUpdate(steps=3)
    yarn: Yarn | None = None
    device: Literal["cpu", "cuda"] | None = None
    roles: tuple[Literal["solver"], ...] = ()
    names: tuple[str, ...] | Literal["all"] = "all"
    stretches: tuple[Yarn, ...] = Field(default=(), description="more of them")


def output(*command: str) -> str:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("flow", CONFIGS)
def test_every_setting_says_what_it_is_for(flow):
    model = importlib.import_module(f"flows.{flow}.config").Config
    assert not [setting.name for setting in settings_of(model) if not setting.description]


@pytest.mark.parametrize("flow", CONFIGS)
def test_a_description_names_values_as_set_takes_them(flow):
    model = importlib.import_module(f"flows.{flow}.config").Config
    shown = {setting.name: setting.description or "" for setting in settings_of(model)}
    as_python = re.compile(r"\b(None|True|False)\b|\bnone: ")
    assert not {name: text for name, text in shown.items() if as_python.search(text)}


@pytest.mark.parametrize("model", [Benchmark, Source])
def test_every_key_of_a_file_that_lists_data_sets_says_what_it_is_for(model):
    assert not [setting.name for setting in settings_of(model) if not setting.description]


def test_groups_are_opened_and_a_changed_default_keeps_its_description():
    assert list(settings_of(Config)) == [
        Setting("model", UNSET, None),
        Setting("update.rate", 0.01, "of learning"),
        Setting("update.steps", 3, None),
        Setting("yarn", None, "Stretches positions."),
        Setting("yarn.factor", UNSET, "how far"),
        Setting("device", None, None, ("cpu", "cuda", None)),
        Setting("roles", (), None, ("solver",)),
        Setting("names", "all", None),
        Setting("stretches", (), "more of them"),
        Setting("stretches[].factor", UNSET, "how far"),
    ]


def test_a_configuration_shows_its_own_values():
    given = Config(model="m", update=SlowUpdate(rate=0.5), yarn=Yarn(factor=4.0))
    assert [(setting.name, setting.value) for setting in settings_of(Config, given)][:4] == [
        ("model", "m"),
        ("update.rate", 0.5),
        ("update.steps", 1),
        ("yarn.factor", 4.0),
    ]


def test_the_command_prints_what_set_takes_and_finds_settings_by_words():
    shown = output("settings", "ttrl-iteration", "group_size")
    assert shown.startswith("group_size = 64\n    answers per question")
    # the purpose of a setting is searched, too
    assert "questions_per_step = 8" in output("settings", "ttrl-iteration", "drawn", "update")
    assert output("settings", "ttrl-iteration", "unread").endswith(
        '\n    allowed: "stop", "warn"\n'
    )
    assert "models.base = ?" in output("settings", "ttrl-iteration", "models.base")


def test_with_a_profile_the_command_shows_its_values():
    shown = output("settings", "ttrl-iteration", "engine.device", "--profile", "micro")
    assert shown.startswith('engine.device = "cpu"\n')
    assert "models.base = ?" not in output("settings", "ttrl-iteration", "--profile", "micro")


def test_no_setting_about_a_word_is_an_error_that_names_it():
    result = CliRunner().invoke(main, ["settings", "ttrl-iteration", "nonsense"])
    assert result.exit_code == 1
    assert "ttrl-iteration has no setting about nonsense" in result.output
