"""Untrusted programs, run in processes that can compute and do nothing else.

`sandbox_child` describes how they are confined. The system call filter is set with ctypes, because
existing bindings need a C library that is not installed everywhere (libseccomp) or a newer kernel
than most machines have (Landlock of Linux 6.12); the kernel's own interface takes only two calls.
"""

from __future__ import annotations

import ast
import contextlib
import json
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

CHILD = Path(__file__).with_name("sandbox_child.py")
START_S = 60.0  # in addition to a program's limit: to start an interpreter on a busy machine
MOST_OF_A_NAME = 100  # maximum characters of an exception's name, as in `sandbox_child`
LOST = "the sandbox lost its process"
NOT_DETERMINISTIC = "two runs differ"
NOT_LITERAL = "its input is no literal"
TRIAL = """
def f():
    import posix
    refused = 0
    for call in (posix.getcwd, posix.pipe, lambda: posix.open("/", 0), lambda: posix.kill(1, 0)):
        try:
            call()
        except PermissionError:
            refused += 1
        except OSError:
            pass
    return refused
"""
TRIAL_REFUSES = 4

Report = dict[str, Any]  # a child's report on a program: see `sandbox_child`


class SandboxSettings(BaseModel):
    """What a program may use."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cpu_s: int = Field(default=10, ge=1, description="processor time of a program, in seconds")
    wall_s: float = Field(
        default=60.0, gt=0, description="seconds by the clock, for what waits instead of computing"
    )
    memory_bytes: int = Field(default=512 << 20, ge=64 << 20, description="addresses, not pages")
    output_bytes: int = Field(default=16_384, ge=64, description="longest text of an output")
    unconfined: bool = Field(
        default=False,
        description=(
            "run programs where the kernel cannot confine them: they may then read and write what"
            " this user may. Only for programs that you trust"
        ),
    )


@dataclass(frozen=True)
class Execution:
    """The outcome of a program: an output, an exception's name, or the reason why there is neither.

    `reason` is also set for an exception.
    """

    output: str | None
    error: str | None
    reason: str | None
    seconds: float


class Sandbox:
    """Runs at most `num_workers` programs at once, each in a separate process.

    Raises RuntimeError at the first program if the kernel cannot confine it, unless
    `settings.unconfined`.
    """

    def __init__(self, settings: SandboxSettings, num_workers: int = 1) -> None:
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="selfplay-sandbox-")
        self._threads = ThreadPoolExecutor(max(1, num_workers))
        self._own = threading.local()  # each thread's interpreters
        self._started: list[Interpreter] = []

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for interpreter in self._started:
            interpreter.end()
        self._folder.cleanup()

    def run(self, jobs: Iterable[tuple[str, str, int]]) -> Iterator[Execution]:
        """Yield the results of jobs, in order. A job is a program, the text of its input, and how
        often to run it.

        Runs of one job differ in the interpreter's hash seed, which reveals an output that depends
        on the order of a set, on an address or on chance.
        """
        # Arguments and outputs are parsed only in this thread: CPython counts the parser's depth
        # for all threads together, so if several parse at once, one may get a SystemError ("AST
        # constructor recursion depth mismatch", seen with 3.11).
        parsed = [(program, _arguments(text), num_runs) for program, text, num_runs in jobs]
        for reports in self._threads.map(self._run_job, parsed):
            if reports is None:
                yield Execution(None, None, NOT_LITERAL, 0.0)
            else:
                yield agreed([execution_of(report) for report in reports])

    def _run_job(self, job: tuple[str, str | None, int]) -> list[Report] | None:
        program, arguments, num_runs = job
        if arguments is None:
            return None
        return [self._interpreter(seed).run(program, arguments) for seed in range(1, num_runs + 1)]

    def _interpreter(self, seed: int) -> Interpreter:
        """This thread's interpreter for a hash seed."""
        if not hasattr(self._own, "interpreters"):
            self._own.interpreters = {}
        interpreters: dict[int, Interpreter] = self._own.interpreters
        if seed not in interpreters:
            interpreters[seed] = Interpreter(self._settings, seed, self._folder.name)
            self._started.append(interpreters[seed])
            interpreters[seed].check()
        return interpreters[seed]


class Interpreter:
    """A process that forks for each program; it is replaced if lost."""

    def __init__(self, settings: SandboxSettings, hash_seed: int, folder: str) -> None:
        self._settings = settings
        self._hash_seed = hash_seed
        self._folder = folder
        self._start()

    def _start(self) -> None:
        # Not -I, which would ignore the hash seed: -s and -P do the rest without an environment.
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", str(CHILD)],
            env={"PYTHONHASHSEED": str(self._hash_seed)},
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the parent only
        )

    def check(self) -> None:
        """Raise RuntimeError if programs should be confined but are not."""
        if self._settings.unconfined:
            return
        trial = self.run(TRIAL, "()")
        if trial.get("output") != str(TRIAL_REFUSES):
            raise RuntimeError(
                "programs cannot be run here, as the kernel does not confine them"
                f" ({execution_of(trial).reason or 'system calls were not refused'}). Linux on"
                " x86_64 or aarch64 with seccomp does, in containers, too. To run programs that you"
                " trust without any protection, set sandbox.unconfined=true"
            )

    def run(self, program: str, arguments: str) -> Report:
        """The child's report on a program's `f`; `arguments` is the text of a tuple of literals.

        A process that is lost, perhaps to the system's own limits, is replaced once.
        """
        result = self._asked(program, arguments)
        if result is None:
            self.end()
            self._start()
            result = self._asked(program, arguments)
        if result is None:
            self.end()
            self._start()
            return {"reason": LOST, "seconds": 0.0}
        return result

    def _asked(self, program: str, arguments: str) -> Report | None:
        """The child's result; None if the child is lost."""
        job = {"program": program, "arguments": arguments, **self._settings.model_dump()}
        pipe = self._process.stdout
        assert pipe is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            # not select(), which takes no descriptor above 1,023
            waiting = select.poll()
            waiting.register(pipe, select.POLLIN)
            if not waiting.poll(1000 * (self._settings.wall_s + START_S)):
                return None
            return json.loads(pipe.readline())
        except (OSError, ValueError):  # it ended, perhaps in the middle of a line
            return None

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # closing flushes what could not be written to a process that is gone
                with contextlib.suppress(OSError):
                    pipe.close()


def execution_of(report: Report) -> Execution:
    """The outcome that a child reports, as far as it can be checked here."""
    seconds = report["seconds"]
    if "output" in report:
        try:
            return Execution(canonical(report["output"]), None, None, seconds)
        except ValueError:
            return Execution(None, None, "its output is no literal", seconds)
    if "error" in report:
        # a program can report any text, even one that no table can store
        error = report["error"].encode("utf-8", "replace").decode()[:MOST_OF_A_NAME]
        return Execution(None, error, f"raised {error}", seconds)
    return Execution(None, None, report["reason"], seconds)


def agreed(runs: Sequence[Execution]) -> Execution:
    """One result for all runs of a job: the first, unless they differ. Dicts that differ in the
    order of their keys are the same.

    >>> agreed([Execution("1", None, None, 0.25), Execution("2", None, None, 0.25)])
    Execution(output=None, error=None, reason='two runs differ', seconds=0.5)
    >>> agreed([Execution(f"{{{keys}}}", None, None, 0.5) for keys in ("1: 2, 3: 4", "3: 4, 1: 2")])
    Execution(output='{1: 2, 3: 4}', error=None, reason=None, seconds=1.0)
    """
    first = runs[0]
    seconds = sum(run.seconds for run in runs)
    if len({(_in_no_order(run.output), run.error, run.reason) for run in runs}) == 1:
        return Execution(first.output, first.error, first.reason, seconds)
    # a limit that only one run hit does not mean that the program depends on chance
    for run in runs:
        if run.output is None and run.error is None:
            return Execution(None, None, run.reason, seconds)
    return Execution(None, None, NOT_DETERMINISTIC, seconds)


def _in_no_order(output: str | None) -> str | None:
    """An output with the keys of its dicts sorted."""
    if output is None or "{" not in output:
        return output
    try:
        return _written(literal(output), sort_keys=True)
    except (ValueError, RecursionError):  # such as an infinite number
        return output


def literal(text: str) -> Any:
    """The value of a literal: only built-in types, without names and calls. Raises ValueError.

    >>> literal("{'a': (1, -2.5)}"), literal("set()")
    ({'a': (1, -2.5)}, set())
    """
    try:
        value = ast.literal_eval(text.strip())
        # `...` is a constant, too, and is how a list that contains itself is written
        if "..." in text and any(
            isinstance(node, ast.Constant) and node.value is ...
            for node in ast.walk(ast.parse(text.strip(), mode="eval"))
        ):
            raise ValueError("an ellipsis")
        return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as problem:
        raise ValueError(f"no literal: {text[:80]!r}") from problem


def canonical(text: str) -> str:
    """A literal in canonical form: equal values of equal types have equal texts. Dicts keep the
    order of their keys, since a program can observe it. Raises ValueError.

    >>> canonical("{3,1, 2}"), canonical('["a",  {"b": 1.50}]')
    ('{1, 2, 3}', "['a', {'b': 1.5}]")
    """
    try:
        return _written(literal(text))
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def _written(value: Any, sort_keys: bool = False) -> str:
    write = partial(_written, sort_keys=sort_keys)
    if isinstance(value, dict):
        parts = [f"{write(key)}: {write(part)}" for key, part in value.items()]
        return "{" + ", ".join(sorted(parts) if sort_keys else parts) + "}"
    if isinstance(value, set) and value:
        return "{" + ", ".join(sorted(map(write, value))) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    if isinstance(value, tuple):
        parts = [write(part) for part in value]
        return "(" + ", ".join(parts) + (",)" if len(parts) == 1 else ")")
    return repr(value)


def arguments_of(text: str) -> str:
    """The text of the tuple of the arguments in `text`, which are separated by commas.

    The arguments must be literals: an expression would itself be a program, and could report any
    output. Raises ValueError for anything else, such as a name, a call or a keyword.

    >>> arguments_of("'John', {'age': 20}"), arguments_of("[1, 2]"), arguments_of("")
    ("('John', {'age': 20})", '([1, 2],)', '()')
    """
    try:
        call = ast.parse(f"f({text.strip()}\n)", mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError) as problem:
        raise ValueError(f"no arguments: {text[:80]!r}") from problem
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise ValueError(f"no arguments: {text[:80]!r}")
    return canonical(f"({text.strip()}\n,)" if call.args else "()")


def _arguments(text: str) -> str | None:
    """`arguments_of`, or None for a text that holds no arguments."""
    try:
        return arguments_of(text)
    except ValueError:
        return None


def equal(left: str, right: str) -> bool:
    """Whether two literals are equal, as Python compares them. Raises ValueError for other texts.

    >>> equal("{1, 2}", "{2, 1}"), equal("1", "1.0"), equal("'1'", "1")
    (True, True, False)
    """
    return bool(literal(left) == literal(right))
