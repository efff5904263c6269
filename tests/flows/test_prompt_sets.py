"""Prompts that lie anywhere, and the readers that go with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.app.command.parameters import check_prompts, read_settings
from flows.benchmarks.readers import read_line
from flows.run import templates
from flows.runtime.templates import refuse_held_out, rendered
from flows.rzero.config import Config as RZero
from flows.rzero.flow import Roles
from flows.settings import profile
from flows.settings.profile import MethodSettings
from flows.settings.prompts import folder_of, is_read_by_lines
from flows.spell.config import Config as Spell
from flows.spell.roles import Roles as SpellRoles
from flows.spice.config import Config as Spice
from tasks.prompt import Template
from tasks.readers.boxed import last_box
from tasks.readers.copies import COPIED, Instructions
from tasks.readers.lines import read_result
from warehouse.schemas import TASKS

PROMPTS = profile.home(RZero) / "prompts"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of R-Zero's line prompts under another name, seen from the folder above it."""
    folder = tmp_path / "my_prompts"
    shutil.copytree(PROMPTS / "lines", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def load(prompts: Path | str) -> RZero:
    return profile.load(RZero, "micro", {"dialogues.prompts": str(prompts)})


def test_a_path_on_the_command_line_is_relative_to_the_callers_folder(own: Path) -> None:
    settings = read_settings(["dialogues.prompts=./my_prompts", "seed=3", "models.base=./model"])
    assert settings == {"dialogues.prompts": str(own), "seed": 3, "models.base": "./model"}
    assert read_settings(["dialogues.prompts=english"]) == {"dialogues.prompts": "english"}


def test_the_templates_of_a_folder_anywhere_are_those_of_the_run(own: Path) -> None:
    (own / "solver.jinja").write_text("Solve {{ question }}:")
    cfg = load(own)
    assert templates(cfg, cfg.dialogues.prompts)("solver").text == "Solve {{ question }}:"
    assert Roles(cfg).solver.templates[0].text == "Solve {{ question }}:"


def readers(prompts: Path | str) -> list[Callable[[str], str]]:
    """What reads a question and an answer."""
    roles = Roles(load(prompts))
    of_roles = [roles.challenger.read, roles.solver.read]
    return [reader.recipe_identity()["read"].keywords["read"] for reader in of_roles]


def test_the_readers_are_those_that_the_set_names_whatever_its_own_name_is(own: Path) -> None:
    assert readers(own) == readers("lines") == [read_line, read_result]
    (own / "set.toml").write_text('readers = "standard"')
    assert readers(own)[1] == readers("english")[1] == last_box
    (own / "set.toml").unlink()
    assert readers(own)[1] == last_box


@pytest.mark.parametrize("model", [RZero, Spell, Spice])
def test_only_the_sets_named_lines_are_read_by_lines_of_those_that_are_shipped(
    model: type[MethodSettings],
) -> None:
    home = profile.home(model)
    sets = {path.parent.name for path in (home / "prompts").glob("*/set.toml")}
    assert sets >= {"lines", "paper"}
    assert {name for name in sets if is_read_by_lines(home / "prompts" / name)} == {"lines"}
    assert not profile.load(model, "micro").reads_lines
    assert profile.load(model, "smollm2").reads_lines


def test_a_set_takes_the_templates_that_it_lacks_from_the_one_that_it_extends(own: Path) -> None:
    (own / "set.toml").write_text('extends = "others"')
    (own / "solver.jinja").unlink()
    (own.parent / "others").mkdir()
    (own.parent / "others" / "solver.jinja").write_text("Solve {{ task }}!")
    assert folder_of(own, "challenger") == own
    assert Roles(load(own)).solver.templates[0].text == "Solve {{ task }}!"
    (own / "set.toml").unlink()
    with pytest.raises(ValueError, match=r"no prompt template solver\.jinja in .*my_prompts"):
        Roles(load(own))


def test_a_set_of_another_name_asks_for_what_lines_ask_for(tmp_path: Path) -> None:
    """SPELL's line prompts ask one type of question."""
    folder = tmp_path / "zeilen"
    shutil.copytree(profile.home(Spell) / "prompts" / "lines", folder)
    with pytest.raises(ValueError, match='prompts "lines" ask one type of question'):
        profile.load(Spell, "micro", {"dialogues.prompts": str(folder)})
    cfg = profile.load(Spell, "smollm2", {"dialogues.prompts": str(folder)})
    assert len(SpellRoles(cfg).responder.templates) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('readers = "boxes"', "set.toml: readers: Input should be 'standard', 'lines' or 'words'"),
        (
            "reader = 1",
            "set.toml: reader: there is no such setting; settings here are extends, readers",
        ),
        ("readers = ", "set.toml is not valid TOML"),
    ],
)
def test_a_wrong_set_file_is_named(own: Path, text: str, message: str) -> None:
    (own / "set.toml").write_text(text)
    with pytest.raises(ValueError) as problem:
        Roles(load(own))
    assert message in str(problem.value)
    with pytest.raises(ValueError, match=r"set\.toml"):
        check_prompts(load(own))  # before a run


@pytest.mark.parametrize("text", ["{{ x | nofilter }}", "{{ x is nosuch }}", "{% if %}"])
def test_a_template_that_is_no_jinja_is_named_before_the_run(own: Path, text: str) -> None:
    (own / "solver.jinja").write_text(f"{{{{ question }}}}\n{text}")
    with pytest.raises(ValueError, match=r"solver\.jinja, line 2: "):
        Roles(load(own))


@pytest.mark.parametrize(
    "text", ['{% include "a" %}', "{{ 1 // 0 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"]
)
def test_a_template_that_cannot_be_filled_in_is_named(text: str) -> None:
    template = Template("solver", text)
    with (
        pytest.raises(ValueError, match=r"prompt of solver \(solver\.jinja\) cannot be filled in"),
        rendered("solver", [template]),
    ):
        template.render()


def test_a_byte_order_mark_is_no_part_of_a_prompt(own: Path) -> None:
    (own / "solver.jinja").write_bytes(b"\xef\xbb\xbfSolve {{ question }}:")
    assert Roles(load(own)).solver.templates[0].text == "Solve {{ question }}:"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"dialogues.prompts is '{tmp_path}/no', which is not"):
        load(tmp_path / "no")


MINE = [
    '{"question": "Who dug it?", "answers": ["Ada", "A"], "context": "Ada dug\\nthe {{ canal }}."}',
    '{"question": "When?", "answers": ["1901"], "context": "It was dug in 1901."}',
]


def test_worked_examples_of_my_own_stand_in_place_of_the_sets(own: Path) -> None:
    """A line each, whatever they contain; two, although the set's prompt shows three."""
    mine = own / "mine.jsonl"
    mine.write_text("\n".join(MINE))
    cfg = profile.load(Spell, "smollm2", {"dialogues.examples": str(mine)})
    asked = SpellRoles(cfg).questioner.templates[0]
    assert asked.render(context="It leaks.") == (
        "Text: Ada dug the {{ canal }}.\nQuestion: Who dug it? Answer: Ada\n\n"
        "Text: It was dug in 1901.\nQuestion: When? Answer: 1901\n\n"
        "Text: It leaks.\nQuestion:"
    )
    baseline = templates(cfg, "lines-5-shot")("responder_general_qa")
    assert baseline.render(context="It leaks.", question="Does it?").startswith("Text: Ada dug")
    theirs = SpellRoles(profile.load(Spell, "smollm2", {})).questioner.templates[0]
    assert asked.version != theirs.version


def test_copies_of_my_own_worked_examples_are_refused_as_those_of_the_set_are(own: Path) -> None:
    """Also a question of two words; the set's own examples are then free to be asked."""
    mine = own / "mine.jsonl"
    mine.write_text("\n".join(MINE))
    cfg = profile.load(Spell, "smollm2", {"dialogues.examples": str(mine)})
    reader = SpellRoles(cfg).questioner.reader
    text = "Text: Ada dug the canal with Bob in 1901.\nQuestion:"
    prompt: Any = {"messages": [{"role": "user", "content": text}], "prompt_id": "p"}

    def why(reply: str) -> str | None:
        rollout: Any = {
            "rollout_id": "r",
            "prompt_id": "p",
            "reply": reply,
            "turns": [{"text": reply}],
            "finish_reason": "final",
        }
        [row] = reader.rows(TASKS, rollout, prompt)
        return row["malformed"]

    assert why(" Who dug it? Answer: Ada\n") == COPIED
    assert why(" Who dug the canal? Answer: Ada\n") is None
    assert why(" who was mount elbert named in honor of? Answer: Bob\n") is None


def test_a_worked_example_that_is_held_out_is_refused(own: Path) -> None:
    mine = own / "mine.jsonl"
    mine.write_text("\n".join(MINE))
    held_out = own / "test.jsonl"
    held_out.write_text('{"question": "When?", "answer": "1999", "context": "In 1999."}')
    with pytest.raises(ValueError, match=r"mine\.jsonl, row 2: the question of this worked exam"):
        refuse_held_out(mine, held_out)
    held_out.write_text('{"question": "Who?", "answer": "Ada", "context": "Ada dug a ditch"}')
    refuse_held_out(mine, held_out)
    held_out.write_text('{"question": "Who?", "answer": "Ada", "context": "Ada dug, a ditch"}')
    mine.write_text('{"question": "Why?", "answer": "Ada", "context": "ADA dug the ditch!"}')
    with pytest.raises(ValueError, match=r"row 1: the context of this worked example is held out"):
        refuse_held_out(mine, held_out)


def test_a_worked_example_without_an_answer_is_named(own: Path) -> None:
    mine = own / "mine.csv"
    mine.write_text("question,context\nWho?,Ada was there.\n")
    with pytest.raises(ValueError, match=r"mine\.csv, row 1: a worked example has no answer"):
        SpellRoles(profile.load(Spell, "smollm2", {"dialogues.examples": str(mine)}))


def test_worked_examples_are_copies_if_they_come_back(own: Path) -> None:
    questioner = SpellRoles(profile.load(Spell, "smollm2", {})).questioner
    said = Instructions.of(template.text for template in questioner.templates)
    assert said.holds(
        "The mountain was named in honor of Samuel Hitt Elbert, and was first climbed"
    )
