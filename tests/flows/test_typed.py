"""Every command that the documentation tells a reader to type is accepted, with its options,
settings and modules."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from flows.app.command import cli
from flows.app.command.parameters import find_deployment, find_method, read_setting
from flows.runtime.store_root import SOURCE
from flows.settings import profile

PLACES = (
    "*.md",
    ".github/CON*.md",
    *(f"{top}/**/*.md" for top in ("flows", "tasks", "warehouse", "corpus_prep")),
    # not data/**: the user's store is there
    *(f"data/{part}/**/*.md" for part in ("bench", "english", "micro")),
)
PAGES = sorted(path for pattern in PLACES for path in SOURCE.glob(pattern))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`((?:selfplay|make|python -m|prefect) [^`]*)`")
KNOWN = ("selfplay", "make", "python", "prefect")


def typed(page: Path) -> list[list[str]]:
    """The commands of a page, each as its words; a comment after a command is none of them."""
    text = page.read_text(encoding="utf-8")
    lines = [" ".join(found.split()) for found in INLINE.findall(BLOCK.sub("", text))]
    return typed_in_blocks(page) + words_of(lines)


def typed_in_blocks(page: Path) -> list[list[str]]:
    """The commands of a page that stand in a block, whole."""
    return words_of(
        line
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8"))
        if not language  # a block of bash may name what its reader is to write
        for line in block.replace("\\\n", " ").splitlines()
    )


def words_of(lines: Iterable[str]) -> list[list[str]]:
    commands = [
        shlex.split(line, comments=True)
        for line in lines
        if line.startswith((*KNOWN, ".venv/bin/python"))
    ]
    return [[words[0].removeprefix(".venv/bin/"), *words[1:]] for words in commands]


COMMANDS = [words for page in PAGES for words in typed(page)]
WHOLE = [words for page in PAGES for words in typed_in_blocks(page)]


def of(program: str) -> list[list[str]]:
    return [words for words in COMMANDS if words[0] == program]


def test_pages_have_commands() -> None:
    assert min(len(of(program)) for program in KNOWN) > 1 and len(of("selfplay")) > 60


@pytest.mark.parametrize("words", of("selfplay"), ids=shlex.join)
def test_a_command_of_selfplay_has_these_options_and_settings(words: list[str]) -> None:
    command = cli.main
    context = click.Context(cli.main, **cli.main.context_settings)
    rest = words[1:]
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        assert found is not None, f"no command {rest[0]}"
        command = found
        rest = rest[1:]
    try:
        given = command.make_context(words[1], rest, parent=context).params
    except click.MissingParameter:  # of a command that is only named
        assert words not in WHOLE
        return
    except click.BadParameter:  # of a placeholder
        return
    if command.name == "evaluate" and given["target"] and not given["dry_run"]:
        assert given["names"], "no benchmark"
    if given.get("settings") and command.name in ("run", "plan", "prepare"):
        flow = given.get("flow", "prepare-corpus")
        find_deployment(flow, given["profile"])
        settings = dict(
            read_setting(word.replace("path/to/model", "owner/name@0a1b2c3"))
            for word in given["settings"]
        )
        settings |= {"corpus": "any"} if flow == "prepare-corpus" or given.get("corpus") else {}
        profile.load(find_method(flow).config, given["profile"], settings)


def test_every_target_of_make_is_there() -> None:
    targets = set(
        re.findall(r"^([\w-]+):", (SOURCE / "Makefile").read_text(encoding="utf-8"), re.M)
    )
    assert {words[1] for words in of("make") if words[1].islower()} <= targets


def test_every_module_to_be_started_has_a_help() -> None:
    names = {words[2] for words in of("python") if words[1] == "-m"}
    names |= set(
        re.findall(
            r"-m ((?:flows|tests|warehouse)[\w.]+)",
            (SOURCE / "Makefile").read_text(encoding="utf-8"),
        )
    )
    names |= {
        f"tests.bench.{path.stem}"
        for path in SOURCE.glob("tests/bench/*.py")
        if "__main__" in path.read_text()
    }
    for name in sorted(names & {name for name in names if name.startswith(("flows", "tests"))}):
        spec = importlib.util.find_spec(name)
        assert (
            spec
            and spec.origin
            and "ArgumentParser" in Path(spec.origin).read_text(encoding="utf-8")
        ), name
