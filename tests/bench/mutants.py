"""Change one token at a time and see whether a fast test fails: `python -m tests.bench.mutants
[SHARE [NAME...]]`.

Tests a seeded share of all mutants (1.0) of the files whose path contains a NAME, and lists the
survivors. Exits with 1 if fewer than 90 % are killed. `make mutants` tests all.

mutmut skips decorated functions, which all stages are, and does not support SQL; cosmic-ray starts
one pytest per mutant and writes to the checkout. Here packages are imported once, and a mutant is a
forked process that imports the project with one file changed in memory: nothing is written, and a
mutant costs little more than the tests that kill it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.one_token import Mutant, mutants

SOURCE = Path(__file__).resolve().parents[2]
TESTS: dict[str, str] = {  # file -> the tests that should kill its mutants, besides its doctests
    "tasks/score.py": "flows/scope/scoring tasks/named_tables",
    "tasks/normalise.py": "tasks/normalise flows/spell/selection",
    "tasks/batch.py": "tasks/batch",
    "tasks/training/datums.py": "tasks/training/datums tasks/training/datum_plans",
    "tasks/match.py": "tasks/match",
    "tasks/scorers/equality.py": "tasks/scorers/equality tasks/readers/reader_family",
    "tasks/vote.py": "tasks/vote",
    "tasks/keep.py": "tasks/named_tables flows/scope/difficulty_window",
    "tasks/monitors/monitor.py": "tasks/monitors/monitor_measures tasks/monitors/monitor",
    "tasks/monitors/drift.py": "tasks/monitors/drift",
    "tasks/monitors/audit.py": "tasks/monitors/gate_leaks",
    "tasks/judge.py": "tasks/judge flows/scope/prompts",
    "tasks/evaluate.py": "tasks/means",
    "flows/scope/rewards.py": "flows/scope/rewards flows/scope/scoring",
    "flows/scope/monitor.py": "flows/scope/canaries flows/scope/prompts flows/scope/played",
    "flows/scope/rubrics.py": "flows/scope/rewards flows/scope/scoring flows/scope/prompts",
    "flows/spell/rewards.py": "flows/scope/rewards flows/spell/scoring flows/spell/controls",
    "flows/spice/rewards.py": "flows/spice/rewards flows/spice/scoring",
    "flows/rzero/rewards.py": "flows/rzero/rzero",
    "flows/scope/sql/difficulty_window.sql": "flows/scope/difficulty_window",
    "flows/spell/sql/consistent_votes.sql": "flows/spell/selection",
    "flows/spell/sql/responder_groups.sql": "flows/spell/selection",
    "flows/spell/sql/questions.sql": "flows/spell/selection",
    "flows/spice/sql/left_out.sql": "flows/spice/selection",
    "flows/spice/sql/one_per_document.sql": "flows/spice/selection",
    "flows/rzero/sql/informative.sql": "flows/rzero/rzero",
}
OURS = {"data", "tests", "tasks", "flows", "warehouse", "corpus_prep"}
Played = tuple[str, Mutant | None]
LIMIT_S = 180
ENOUGH = 0.9
SEED = 0


def tests_of(path: str) -> list[str]:
    own = [path] if path.endswith(".py") else []
    named = (Path(name) for name in TESTS[path].split())
    return [*(f"tests/{name.parent}/test_{name.name}.py" for name in named), *own]


def start(path: str, mutant: Mutant | None) -> int:
    """Run the tests of a file in a forked process and return its id. It exits with 0 if all of
    them pass."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    signal.alarm(LIMIT_S)
    with contextlib.suppress(BaseException):
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if mutant is not None:
            change(SOURCE / path, mutant.text)
        options = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--assert=plain",
        ]
        os._exit(int(pytest.main([*options, *tests_of(path)])))
    os._exit(99)


def change(path: Path, text: str) -> None:
    """Let this process read `text` where `path` is imported or read."""
    loader: Any = importlib.machinery.SourceFileLoader
    get_code = loader.get_code
    read_text = Path.read_text
    loader.get_code = lambda self, name: (
        compile(text, path, "exec") if self.path == str(path) else get_code(self, name)
    )
    Path.read_text = lambda self, *args, **kwargs: (
        text if self == path else read_text(self, *args, **kwargs)
    )  # type: ignore[method-assign]


def play(some: list[Played], num_workers: int) -> Iterator[tuple[Played, bool]]:
    """Yield each mutant as it ends, with whether its tests passed; `None` stands for the
    unchanged file."""
    running: dict[int, Played] = {}
    for number, played in enumerate(some, start=1):
        running[start(*played)] = played
        while len(running) >= (num_workers if number < len(some) else 1):
            pid, status = os.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # and what its tests started
            yield running.pop(pid), os.waitstatus_to_exitcode(status) == 0


def check_unchanged(paths: list[str], num_workers: int) -> None:
    """Exit if tests fail on the unchanged files."""
    failing = [
        path
        for (path, _), passed in play([(path, None) for path in paths], num_workers)
        if not passed
    ]
    if failing:
        sys.exit(f"tests fail without a change: {', '.join(failing)}")


def import_packages(paths: list[str]) -> None:
    """Import what the tests of these files import, except the project."""
    files = sorted({test for path in paths for test in tests_of(path)})
    code = (
        f"import sys, pytest; pytest.main(['-q', '--collect-only', *{files}]); print('\\n' + '"
        " '.join(sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=SOURCE, capture_output=True, text=True, check=True
    )
    for name in told.stdout.splitlines()[-1].split():
        if name.partition(".")[0] not in {*OURS, "conftest"}:
            with contextlib.suppress(ImportError):  # aliases such as six.moves
                importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("share", type=float, nargs="?", default=1.0, help="of the mutants")
    parser.add_argument("names", nargs="*", help="parts of the names of files")
    share, names = vars(parser.parse_args()).values()
    paths = [path for path in TESTS if not names or any(name in path for name in names)]
    num_workers = int(os.environ.get("WORKERS", os.cpu_count() or 1))
    import_packages(paths)
    check_unchanged(paths, num_workers)
    draw = random.Random(SEED)
    some: list[Played] = [
        (path, mutant)
        for path in paths
        for mutant in mutants(SOURCE / path)
        if draw.random() < share
    ]
    survived: dict[str, list[bool]] = defaultdict(list)
    for (path, mutant), alive in play(some, num_workers):
        survived[path].append(alive)
        if alive and mutant is not None:
            print(f"survived: {path}:{mutant.line}: {mutant.change}", flush=True)
    print(f"\n{'file':44}{'mutants':>9}{'killed':>9}")
    for path, alive in [
        *survived.items(),
        ("all", [a for values in survived.values() for a in values]),
    ]:
        print(
            f"{path:44}{len(alive):9}{len(alive) - sum(alive):9}  {1 - sum(alive) / len(alive):.0%}"
        )
    sys.exit(sum(map(sum, survived.values())) > (1 - ENOUGH) * len(some))


if __name__ == "__main__":
    main()
