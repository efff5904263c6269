import importlib
import inspect
import operator
import subprocess
import sys
from pathlib import Path
from pkgutil import walk_packages

import pytest

import tasks
from warehouse.code import fingerprint

PROJECT = Path(__file__).resolve().parents[2]
STAGE = '''
import functools
import json
import re
import typing
from typing import overload

import madeup_more

LIMIT = 3
WORDS = re.compile("a+")
TEXTS = {"a": "one", "b": ["two"]}


def make(n):
    """What it makes."""
    words = len(WORDS.findall(TEXTS["a"]))
    return helper(n) + cached(n) + LIMIT + words + madeup_more.other(n) + Thing().size()


def helper(n):
    return deeper(n)  # a comment


def deeper(n):
    return json.loads("1") + n


@functools.cache
def cached(n):
    return n


class Thing:
    """A thing."""

    def size(self):
        return own_size()


def own_size():
    return 1


@overload
def typed(n: int) -> int: ...


@typing.overload
def typed(n: str) -> str: ...


def typed(n):
    return typed_helper(n)


def typed_helper(n):
    return n


def late(n):
    from madeup_late import slow

    return slow(n)


def unrelated(n):
    return n
'''
MORE = "def other(n):\n    return n\n"
LATE = "import missing_heavy_library\n\ndef slow(n):\n    return n\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes the three modules with the given edits and returns the fingerprint of a function in
    the first."""
    monkeypatch.setattr("warehouse.code.PACKAGES", ("madeup", "madeup_more", "madeup_late"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def write(old: str = "", new: str = "", function: str = "make") -> dict[str, str]:
        assert old in STAGE + MORE + LATE
        for name, text in {"madeup": STAGE, "madeup_more": MORE, "madeup_late": LATE}.items():
            (tmp_path / f"{name}.py").write_text(text.replace(old, new) if old else text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return fingerprint(getattr(importlib.import_module("madeup"), function))

    yield write
    for name in ("madeup", "madeup_more", "madeup_late"):
        sys.modules.pop(name, None)


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # a comment", "  # another"),
        ('"""What it makes."""', '"""What it really makes."""'),
        ('    """A thing."""\n\n', ""),
        ("    return helper(n) + ", "\n    return (helper(n)) \\\n        + "),
        ("def unrelated(n):\n    return n", "def unrelated(n):\n    return -n"),
    ],
    ids=["comment", "docstring", "docstring of a class", "layout", "a function it does not call"],
)
def test_what_does_not_change_the_result_does_not_change_the_fingerprint(package, old, new):
    before = package()
    assert changed(before, package(old, new)) == set()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("return helper(n) + ", "return 2 * helper(n) + ", "madeup.make"),
        ("    return deeper(n)", "    return deeper(n + 1)", "madeup.helper"),
        ("""json.loads("1") + n""", """json.loads("2") + n""", "madeup.deeper"),
        (
            "@functools.cache\ndef cached(n):\n    return n",
            "@functools.cache\ndef cached(n):\n    return -n",
            "madeup.cached",
        ),
        ("return own_size()", "return own_size() + 1", "madeup.Thing"),
        ("def own_size():\n    return 1", "def own_size():\n    return 2", "madeup.own_size"),
        ("def other(n):\n    return n", "def other(n):\n    return -n", "madeup_more.other"),
        ("LIMIT = 3", "LIMIT = 4", "madeup.LIMIT"),
        ("""re.compile("a+")""", """re.compile("b+")""", "madeup.WORDS"),
        ('"a": "one"', '"a": "three"', "madeup.TEXTS['a']"),
        ('["two"]', '["three"]', "madeup.TEXTS['b'][0]"),
    ],
    ids=[
        "the function",
        "a helper",
        "a helper's helper",
        "a cached helper",
        "a class",
        "a method's helper",
        "another module",
        "a constant",
        "a pattern",
        "a dict",
        "a list in a dict",
    ],
)
def test_an_edit_of_what_a_function_reaches_is_named(package, old, new, name):
    before = package()
    assert changed(before, package(old, new)) == {name}


def test_a_module_imported_inside_a_function_counts_without_being_imported(package):
    before = package(function="late")
    after = package("def slow(n):\n    return n", "def slow(n):\n    return -n", function="late")
    assert changed(before, after) == {"madeup_late"}
    assert "missing_heavy_library" not in sys.modules


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return typed_helper(n)", "return 2 * typed_helper(n)", {"madeup.typed"}),
        ("def typed_helper(n):\n    return n", "def typed_helper(n): ...", {"madeup.typed_helper"}),
        ("def typed(n: str) -> str: ...", "def typed(n: bytes) -> bytes: ...", set()),
    ],
    ids=["the function", "its helper", "a signature for type checkers"],
)
def test_a_function_with_overloads_is_known_by_its_code(package, old, new, names):
    before = package(function="typed")
    assert changed(before, package(old, new, function="typed")) == names


def test_how_stages_are_made_is_part_of_no_stage_s_code():
    modules = [
        importlib.import_module(f"tasks.{name}")
        for name in ("generate", "read", "score", "evaluate", "update")
    ]
    wrapped = [
        vars(thing).get("__wrapped__")
        for m in modules
        for thing in vars(m).values()
        if callable(thing)
    ]
    stages = [function for function in wrapped if inspect.getmodule(function) in modules]
    assert len(stages) >= 5
    for function in stages:
        assert "tasks.stage.stage" not in fingerprint(function), function.__qualname__


def test_no_stage_reaches_a_variable_that_changes_during_a_run():
    """A second run would find the stage stale: its code counts the items of lists."""
    found = walk_packages(tasks.__path__, "tasks.")
    names = [module.name for module in found if not module.name.startswith("tasks.engines")]
    modules = [importlib.import_module(name) for name in names]
    stages = [
        thing.__wrapped__
        for module in modules
        for thing in vars(module).values()
        if inspect.isfunction(thing)
        and thing.__module__ == module.__name__
        and "schema" in thing.__code__.co_freevars
    ]
    assert len(stages) >= 40
    reached = {name for function in stages for name in fingerprint(function)}
    assert not {name for name in reached if is_variable(name)}


def is_variable(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    value = vars(sys.modules.get(module, object)).get(attribute)
    is_data = isinstance(value, (int, float, list, dict, set))
    return is_data and not attribute.isupper()


def test_code_of_other_packages_is_not_followed(package):
    assert not [name for name in package() if name.startswith(("json", "functools", "re."))]


def test_a_fingerprint_is_the_same_in_every_process(tmp_path):
    module = "KINDS = frozenset({'a', 'b', 'c', 'd', 'e'})\n\ndef make():\n    return KINDS\n"
    (tmp_path / "madeup.py").write_text(module)
    code = "import madeup; from warehouse.code import fingerprint; print(fingerprint(madeup.make))"
    paths = f"{tmp_path}:{PROJECT}"
    found = {
        subprocess.check_output(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            text=True,
        )
        for seed in "12"
    }
    assert len(found) == 1 and "madeup.KINDS" in found.pop()


def test_what_python_has_built_in_is_known_by_its_name():
    """As in `reads("answer", str.strip)`."""
    names = {name for thing in (int, len, str.strip, print) for name in fingerprint(thing)}
    assert names == {"builtins.int", "builtins.len", "builtins.str.strip", "builtins.print"}


def test_an_object_that_is_called_has_to_be_a_function():
    with pytest.raises(ValueError, match=r"operator.itemgetter\('text'\): write it as a function"):
        fingerprint(operator.itemgetter("text"))
