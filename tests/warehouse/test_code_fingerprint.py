import ast
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import operator
import subprocess
import sys
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest

import tasks
from tasks.ask import ask
from tasks.benchmarks.item_scores import score_items
from tasks.engines.fleet_child import search_and_roll_out
from tasks.generate import generate
from tasks.processes.comparison_child import serve
from tasks.prompt import Prompt, Template
from tasks.read import read, reads
from tasks.readers.copies import Instructions
from tasks.stage import describe, make_recipe
from warehouse.code import (
    PACKAGES,
    _follow_name,
    fingerprint,
    methods_fingerprint,
    module_fingerprint,
)
from warehouse.schemas import ANSWERS, PROMPTS

PROJECT = Path(__file__).resolve().parents[2]
STAGE = '''
import dataclasses
import functools
import json
import re
import typing
from typing import overload

import madeup_more
import madeup_parts.inner
from pydantic import BaseModel, Field, field_validator

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


class Thing(BaseModel):
    """A thing."""

    width: int = Field(default=1, description="how wide")

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


@dataclasses.dataclass(frozen=True)
class Scorer:
    names: tuple
    score: typing.Any

    def best(self, n):
        return helper(n)

    def recipe_identity(self):
        return {"names": self.names}


class Limits(BaseModel):
    most: int = 3

    @field_validator("most")
    @classmethod
    def positive(cls, value):
        return value

    @property
    def least(self):
        return own_size()


SCORERS = {"one": Scorer(("em",), helper)}
SCORE = functools.partial(typed_helper, 2)
LIMITS = Limits()
READ = SCORERS["one"].best


def score(n):
    return SCORERS["one"].score(n), SCORE(n), LIMITS.most, madeup_parts.inner.part(n), READ(n)


def relative(n):
    from madeup_parts import inner

    return inner.part(n)


def weighted(weight):
    def reward(n):
        return weight * n

    return reward


REWARD = weighted(1.0)


def rewarded(n):
    return REWARD(n)


def unrelated(n):
    return n
'''
PART = """from . import deep


def part(n):
    return n
"""
DEEP = "def deep(n):\n    return n\n"
MODULES = {
    "madeup": "madeup.py",
    "madeup_more": "madeup_more.py",
    "madeup_late": "madeup_late.py",
    "madeup_parts": "madeup_parts/__init__.py",
    "madeup_parts.inner": "madeup_parts/inner.py",
    "madeup_parts.deep": "madeup_parts/deep.py",
}
MORE = "def other(n):\n    return n\n"
LATE = """from madeup_parts.inner import part

try:
    from madeup_more import other as either
except ImportError:
    from madeup_parts.inner import part as either

if __debug__:
    raise RuntimeError("too heavy to import")

SPEED = 2
RATES = {"slow": SPEED}
RATES["fast"] = 9
FACTORS = [1, 2]


def slow(n):
    return part(n) * RATES["slow"] + scaled(n) + either(n)


def scaled(n):
    return n


def idle(n):
    return n * FACTORS[0]
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the modules with the given edit, and imports the first."""
    packages = ("madeup", "madeup_more", "madeup_late", "madeup_parts")
    monkeypatch.setattr("warehouse.code.PACKAGES", packages)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "madeup_parts").mkdir()
    texts = dict(zip(MODULES, (STAGE, MORE, LATE, "", PART, DEEP), strict=True))

    def write(old: str = "", new: str = "") -> ModuleType:
        assert any(old in text for text in texts.values())
        for name, text in texts.items():
            (tmp_path / MODULES[name]).write_text(text.replace(old, new) if old else text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("madeup")

    yield write
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def package(written):
    """Writes the modules with the given edit, and returns the fingerprint of a function in the
    first."""

    def write(old: str = "", new: str = "", function: str = "make") -> dict[str, str]:
        return fingerprint(getattr(written(old, new), function))

    return write


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # a comment", "  # another"),
        ('"""What it makes."""', '"""What it really makes."""'),
        ('    """A thing."""\n\n', ""),
        ('description="how wide"', 'description="width in metres"'),
        ("    return helper(n) + ", "\n    return (helper(n)) \\\n        + "),
        ("def unrelated(n):\n    return n", "def unrelated(n):\n    return -n"),
    ],
    ids=[
        "comment",
        "docstring",
        "docstring of a class",
        "description of a field",
        "layout",
        "a function it does not call",
    ],
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
        ("Field(default=1", "Field(default=2", "madeup.Thing"),
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
        "a default of a field",
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


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("    return part(n)", "    return -part(n)", {"madeup_late.slow"}),
        (
            "def scaled(n):\n    return n",
            "def scaled(n):\n    return -n",
            {"madeup_late.scaled"},
        ),
        ("SPEED = 2", "SPEED = 3", {"madeup_late.SPEED"}),
        ('RATES["fast"] = 9', 'RATES["fast"] = 10', {"madeup_late.RATES"}),
        ("def part(n):\n    return n", "def part(n): ...", {"madeup_parts.inner.part"}),
        ("def other(n):\n    return n", "def other(n): ...", {"madeup_more.other"}),
        ("too heavy", "much too heavy", {"madeup_late on import"}),
        ("    return n * FACTORS[0]", "    return n", set()),
        ("FACTORS = [1, 2]", "FACTORS = [2, 3]", set()),
        ("from . import deep", "import json", set()),
    ],
    ids=[
        "the function",
        "its helper",
        "a constant of a constant",
        "a change of a constant",
        "a function of another module",
        "one of two imports of a name",
        "what an import does",
        "a function it does not call",
        "a constant it does not read",
        "an import it does not use",
    ],
)
def test_a_function_imported_inside_a_function_counts_without_being_imported(
    package, old, new, names
):
    before = package(function="late")
    assert changed(before, package(old, new, function="late")) == names


@pytest.mark.parametrize("imported", ["import madeup_late", "from madeup_late import gone"])
def test_a_module_counts_as_a_whole_if_it_is_unknown_what_is_used_of_it(package, imported):
    late = f"    {imported}\n\n    return slow(n)"
    before = package("    from madeup_late import slow\n\n    return slow(n)", late, "late")
    assert {"madeup_late", "madeup_parts.inner.part"} < before.keys()


def test_a_module_imported_from_a_package_counts_and_what_it_imports_relatively(package):
    before = package(function="relative")
    assert before.keys() == {"madeup.relative", "madeup_parts.inner", "madeup_parts.deep"}
    after = package("def deep(n):\n    return n", "def deep(n):\n    return -n", "relative")
    assert changed(before, after) == {"madeup_parts.deep"}


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return deeper(n)", "return deeper(n + 1)", {"madeup.helper"}),
        (
            'Scorer(("em",)',
            'Scorer(("f1",)',
            {"madeup.SCORERS['one'].names[0]", "madeup.READ.self.names[0]"},
        ),
        ("partial(typed_helper, 2)", "partial(typed_helper, 3)", {"madeup.SCORE.args[0]"}),
        ("LIMITS = Limits()", "LIMITS = Limits(most=4)", {"madeup.LIMITS.most"}),
        (
            "def part(n):\n    return n",
            "def part(n):\n    return -n",
            {"madeup_parts.inner.part"},
        ),
    ],
    ids=["a field's function", "a field", "a partial", "a model's field", "a package's module"],
)
def test_objects_among_globals_count_by_what_they_hold(package, old, new, names):
    before = package(function="score")
    assert changed(before, package(old, new, function="score")) == names


def test_what_a_function_within_a_function_holds_counts(package):
    before = package(function="rewarded")
    after = package("REWARD = weighted(1.0)", "REWARD = weighted(2.0)", function="rewarded")
    assert changed(before, after) == {"madeup.REWARD.weight"}


def test_two_functions_or_methods_that_hold_other_values_are_described_differently(written):
    module = written()
    assert describe(module.weighted(1.0)) == describe(module.weighted(1.0))
    assert describe(module.weighted(1.0)) != describe(module.weighted(2.0))
    one, two = (module.Scorer((name,), module.helper) for name in "ab")
    assert describe(one.best) == describe(one.best) != describe(two.best)


def test_a_partial_is_described_by_its_function_and_all_its_arguments(written):
    module = written()

    def described(*args, **named):
        return describe(functools.partial(module.helper, *args, **named))

    same = described(1, most=2)
    assert same == described(1, most=2)
    assert same != described(2, most=2)
    assert same != described(1, most=3)
    assert same != describe(functools.partial(module.score, 1, most=2))


@pytest.mark.parametrize(
    ("kind", "old", "new", "names"),
    [
        ("Scorer", "return deeper(n)", "return deeper(n + 1)", {"madeup.helper"}),
        ("Scorer", "    return helper(n)\n\n    def r", "    return n\n\n    def r", None),
        ("Limits", "def own_size():\n    return 1", "def own_size(): ...", {"madeup.own_size"}),
        ("Limits", "return value", "return value + 0", set()),
        ("Limits", "most: int = 3", "most: int = 4", set()),
        ("Scorer", '{"names": self.names}', '{"names": self.names, "n": 1}', set()),
    ],
    ids=["a method's helper", "a method", "a property's", "a check", "a default", "its identity"],
)
def test_the_methods_of_an_object_count(written, kind, old, new, names):
    before = methods_fingerprint(getattr(written(), kind))
    after = methods_fingerprint(getattr(written(old, new), kind))
    if names is None:
        assert "madeup.Scorer.best" in changed(before, after)
    else:
        assert changed(before, after) == names


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


def test_how_replies_are_read_and_prompts_rendered_is_in_the_recipes():
    template = Template("solver", "{{ question }}")
    reader = dataclasses.replace(
        reads("answer", str.strip), instructions=Instructions.of([template.text])
    )
    code = make_recipe(inspect.unwrap(read(ANSWERS)), {"reader": reader}, ANSWERS)["code"]
    assert {
        "tasks.read.Reader.rows",
        "tasks.read.reason",
        "tasks.readers.copies.Instructions.holds",
        "tasks.readers.copies.LONGEST_CHANCE",
    } <= code.keys()
    prompt = Prompt("solver", (template,), variables=no_variables)
    code = make_recipe(inspect.unwrap(ask), {"prompt": prompt}, PROMPTS)["code"]
    assert {"tasks.prompt.Template.render", "tasks.rollouts.neutral.neutralise"} <= code.keys()


def no_variables() -> list:
    return []


def test_how_replies_and_corpora_are_read_is_not_in_the_recipe_of_rollouts():
    """A change to a reader, or to how corpora are prepared, samples nothing again. Searches in a
    reply are found while sampling."""
    code = fingerprint(inspect.unwrap(generate)) | fingerprint(search_and_roll_out)
    assert "tasks.rollouts.search_syntax.find_search" in code
    assert "corpus_prep.search.index.load_index" in code
    apart = ("tasks.read.", "tasks.readers.copies", "corpus_prep.read", "corpus_prep.corpus")
    assert [name for name in code if name.startswith(apart)] == []


def test_the_rules_that_score_benchmarks_are_in_the_recipe_of_scores():
    code = fingerprint(inspect.unwrap(score_items))
    assert {
        "tasks.scorers.short.score",
        "tasks.scorers.rules.same_mathematics",
        "tasks.scorers.tables.score",
    } <= code.keys()


def test_all_that_the_trainer_imports_from_the_project_is_in_the_recipe_of_updates():
    names = module_fingerprint("tasks.training.trainer").keys()
    spec = importlib.util.find_spec("tasks.training.trainer")
    assert spec is not None and spec.origin is not None
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(Path(spec.origin).read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
    }
    assert len(imported) > 10
    assert imported <= names
    assert "tasks.training.head" in names


@pytest.mark.parametrize("package_of", ["readers", "rollouts", "scorers"])
def test_source_leads_to_all_that_imported_modules_lead_to(package_of):
    """The fingerprint of a function from source alone has the functions and classes of the one
    from its module's globals."""
    num_functions = 0
    package = importlib.import_module(f"tasks.{package_of}")
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        for name, function in vars(importlib.import_module(found.name)).items():
            if not inspect.isfunction(function) or function.__module__ != found.name:
                continue
            num_functions += 1
            hashes: dict[str, str] = {}
            _follow_name(found.name, name, hashes)
            for reached in filter(is_code, fingerprint(function)):
                assert {reached, reached.rpartition(".")[0]} & hashes.keys(), function
    assert num_functions > 20


def is_code(name: str) -> bool:
    """Whether a name of a fingerprint is that of a function or class of the project."""
    module, _, own_name = name.rpartition(".")
    if module.split(".")[0] not in PACKAGES or not is_module(module):
        return False
    thing = getattr(importlib.import_module(module), own_name, None)
    return inspect.isfunction(thing) or inspect.isclass(thing)


def test_the_code_of_trainers_and_encoders_is_read_without_loading_their_libraries():
    """They take longer to import than a small run takes to train."""
    code = """
import sys
from warehouse.code import module_fingerprint
for module in ("tasks.training.trainer", "corpus_prep.search.encoder", "tasks.engines.fleet_child"):
    assert module in module_fingerprint(module)
print({"torch", "transformers", "trl", "vllm", "sentence_transformers"} & sys.modules.keys())
"""
    found = subprocess.check_output([sys.executable, "-c", code], cwd=PROJECT, text=True)
    assert found == "set()\n"


def is_module(name: str) -> bool:
    if name.split(".")[0] not in PACKAGES:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


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


def test_the_columns_of_a_table_are_part_of_its_recipe():
    function = inspect.unwrap(ask)
    one = make_recipe(function, {"count": 1}, PROMPTS)
    other = make_recipe(function, {"count": 1}, ANSWERS)
    assert one["code"] == other["code"] and one["params"] == other["params"]
    assert one["key"] != other["key"]


def test_the_code_that_a_stage_runs_in_other_processes_is_part_of_its_recipe():
    function = inspect.unwrap(ask)
    alone = make_recipe(function, {}, PROMPTS)
    told = make_recipe(function, {}, PROMPTS, code=(serve, "tasks.processes.comparison_child"))
    assert {"tasks.processes.comparison_child.serve"} <= told["code"].keys() - alone["code"].keys()
    assert alone["key"] != told["key"]
