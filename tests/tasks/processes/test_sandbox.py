"""Programs nobody trusts: what they cannot do, and what comes of those that try."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.processes import sandbox_child
from tasks.processes.sandbox import (
    LOST,
    NOT_DETERMINISTIC,
    NOT_LITERAL,
    Interpreter,
    Sandbox,
    SandboxSettings,
    arguments_of,
    canonical,
    equal,
    execution_of,
    literal,
)

SETTINGS = SandboxSettings(cpu_s=1, wall_s=120, memory_bytes=256 << 20, output_bytes=2_000)


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    one = Interpreter(SETTINGS, 1, str(tmp_path_factory.mktemp("nowhere")))
    one.check()
    yield one
    one.end()


def outcome(interpreter: Interpreter, program: str, arguments: str = "()") -> str | None:
    """The output of a program, or the reason why it has none."""
    result = execution_of(interpreter.run(program, arguments))
    return result.reason if result.output is None else result.output


def test_a_program_has_the_output_that_f_returns(interpreter: Interpreter) -> None:
    program = "from collections import Counter\ndef f(a, b):\n    return dict(Counter(a)), b"
    assert outcome(interpreter, program, "('aba', 2.50)") == "({'a': 2, 'b': 1}, 2.5)"


REACHES_OUT = {
    "reads the users": "return open('/etc/passwd').read()",
    "reads the home folder": "import os\n    return os.listdir(os.path.expanduser('~'))",
    "lists the root": "import posix\n    return posix.listdir('/')",
    "asks where it is": "import os\n    return os.getcwd()",
    "writes a file": "return open('/tmp/hostile', 'w').write('x')",
    "writes beside it": "return open('hostile', 'w').write('x')",
    "removes a file": "import os\n    os.unlink('/tmp/x')",
    "makes a folder": "import os\n    os.mkdir('/tmp/hostile')",
    "forks": "import os\n    return os.fork()",
    "forks often": "import os\n    while True:\n        os.fork()",
    "becomes a command": "import os\n    os.execv('/bin/sh', ['sh'])",
    "kills its parent": "import os\n    os.kill(os.getppid(), 9)",
    "kills all": "import os\n    os.kill(-1, 9)",
    "starts a thread": "import _thread\n    _thread.start_new_thread(print, ())",
    "sleeps": "import time\n    time.sleep(0.01)",
    "asks for chance": "import os\n    return os.urandom(4)",
    "raises its limits": "import os\n    os.setuid(0)",
    "makes a pipe": "import os\n    return os.pipe()",
}


@pytest.mark.parametrize("body", REACHES_OUT.values(), ids=list(REACHES_OUT))
def test_what_reaches_out_of_the_program_is_refused(interpreter: Interpreter, body: str) -> None:
    program = f"def f():\n    {body}"
    refused = ("raised PermissionError", "raised RuntimeError")  # a thread that cannot start
    assert outcome(interpreter, program) in refused


def test_no_command_is_run(interpreter: Interpreter, tmp_path: Path) -> None:
    """A shell that cannot be started is no exception, but a status."""
    program = f"import os\ndef f():\n    return os.system('touch {tmp_path}/hostile')"
    interpreter.run(program, "()")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["socket", "_socket", "ctypes", "subprocess", "mmap", "numpy"])
def test_modules_that_reach_out_cannot_be_imported(interpreter: Interpreter, module: str) -> None:
    result = outcome(interpreter, f"import {module}\ndef f():\n    return 1")
    assert result in ("raised ModuleNotFoundError", "raised ImportError", "raised PermissionError")


TOO_MUCH = {
    "an endless loop": ("while True:\n        pass", "time limit"),
    "a loop that catches all": (
        "while True:\n        try:\n            x = 1 / 0\n        except BaseException:\n"
        "            pass",
        "time limit",
    ),
    "memory": ("return [' ' * 10**7 for _ in range(10**6)]", "raised MemoryError"),
    "one large block": ("return len(' ' * 10**12)", "raised MemoryError"),
    "a large number": ("return 10 ** 10 ** 10", "time limit"),
    "a long number": ("return 10**5_000", "its output is too long"),
    "a long output": ("return 'x' * 5_000", "its output is too long"),
    "endless output": (
        "import posix\n    while True:\n        posix.write(3, b'x' * 1000)",
        "its output is too long",
    ),
    "recursion": ("return f()", "raised RecursionError"),
    "deep recursion in C": (
        "import sys\n    sys.setrecursionlimit(10**9)\n    x = []\n"
        "    for _ in range(10**6):\n        x = [x]\n    return repr(x)",
        "crashed: SIGSEGV",
    ),
}


@pytest.mark.parametrize(("body", "why"), TOO_MUCH.values(), ids=list(TOO_MUCH))
def test_what_uses_too_much_is_stopped_with_the_reason(
    interpreter: Interpreter, body: str, why: str
) -> None:
    result = outcome(interpreter, f"def f():\n    {body}")
    allowed = {why}
    if why == "crashed: SIGSEGV":  # a deep recursion may run out of memory, or of time, before
        allowed |= {"raised MemoryError", "time limit"}
    assert result in allowed


def test_what_waits_for_ever_is_stopped_by_the_clock(tmp_path: Path) -> None:
    waiting = SETTINGS.model_copy(update={"wall_s": 0.5})
    interpreter = Interpreter(waiting, 1, str(tmp_path))
    body = "import _thread\n    lock = _thread.allocate_lock()\n    lock.acquire(), lock.acquire()"
    assert outcome(interpreter, f"def f():\n    {body}") == "wall-clock limit"
    interpreter.end()


CHEATS = {
    "prints a result": ('print(\'{"output": "7"}\')\n    return 1', "1"),
    "exits": ("import sys\n    sys.exit(0)", "raised SystemExit"),
    "leaves": ("import os\n    os._exit(0)", "it ended without a result"),
    "closes the pipe": (
        "import posix\n    posix.close(3)\n    return 1",
        "it ended without a result",
    ),
    "writes half a result": (
        "import posix\n    posix.write(3, b'{\"output\": ')\n    return 1",
        "it ended without a result",
    ),
    "writes no literal": (
        'import posix\n    posix.write(3, b\'{"output": "open(1)"}\')\n    posix._exit(0)',
        "its output is no literal",
    ),
    "writes a reason of its own kind": (
        "import posix\n    posix.write(3, b'{\"output\": 1}')\n    posix._exit(0)",
        "it ended without a result",
    ),
    "writes a name that is no text": (
        'import posix\n    posix.write(3, b\'{"error": "A\\\\ud800"}\')\n    posix._exit(0)',
        "raised A?",
    ),
    "says that the sandbox failed": (
        f'import posix\n    posix.write(3, b\'{{"reason": "{LOST}"}}\')\n    posix._exit(0)',
        "it ended without a result",
    ),
    "equals everything": (
        "class A:\n        def __eq__(self, other):\n            return True\n    return A()",
        "its output is no literal",
    ),
    "shows itself as a number": (
        "class A(int):\n        def __repr__(self):\n            return '7'\n    return A(1)",
        "its output is no literal",
    ),
    "hides it in a list": (
        "class A(str):\n        pass\n    return [1, {'a': (A('x'),)}]",
        "its output is no literal",
    ),
    "holds itself": ("a = []\n    a.append(a)\n    return a", "its output is no literal"),
    "is no number": ("return float('nan')", "its output is no literal"),
    "returns a function": ("return f", "its output is no literal"),
    "works when it is deleted": (
        "class A:\n        def __del__(self):\n            while True:\n                pass\n"
        "    globals()['kept'] = A()\n    return 1",
        "1",
    ),
    "replaces repr": ("import builtins\n    builtins.repr = lambda x: '7'\n    return 1", "7"),
}


@pytest.mark.parametrize(("body", "result"), CHEATS.values(), ids=list(CHEATS))
def test_a_program_that_cheats_has_the_output_that_it_claims_or_none(
    interpreter: Interpreter, body: str, result: str
) -> None:
    """One that claims another output than it returned has gained nothing: it could have returned
    it."""
    assert outcome(interpreter, f"def f():\n    {body}") == result


def test_a_program_without_f_or_no_python_raises(interpreter: Interpreter) -> None:
    assert outcome(interpreter, "g = 1") == "raised KeyError"
    assert outcome(interpreter, "def f(:") == "raised SyntaxError"
    assert outcome(interpreter, "x = " + "(" * 5000) == "raised SyntaxError"
    assert outcome(interpreter, "def f(a):\n    return a") == "raised TypeError"


def test_a_program_sees_no_environment_and_nothing_of_the_one_before(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = "import os\n    return sorted(os.environ)"
    assert outcome(interpreter, f"def f():\n    {known}") in (
        "['LC_CTYPE', 'PYTHONHASHSEED']",
        "['PYTHONHASHSEED']",
    )
    leaves = "import math\n    math.pi = 3\n    return math.pi"
    assert outcome(interpreter, f"def f():\n    {leaves}") == "3"
    assert outcome(interpreter, "import math\ndef f():\n    return math.pi > 3.1") == "True"


def test_an_output_that_depends_on_hashes_or_addresses_is_not_deterministic() -> None:
    jobs = [
        ("def f(a): return list({'b', 'c', 'd', 'e', a})", "'f'", 2),
        ("def f(a): return id(a) % 1_000_003", "object", 2),
        ("def f(a): return id(a)", "'x'", 2),
        ("def f(a): return {'b', 'c', a}", "'d'", 2),
        ("def f(a): raise ValueError(id(a))", "1", 2),
        ("def f(a): return len({c: 1 for c in set(a)}), {c: 1 for c in set(a)}", "'bcdef'", 3),
    ]
    with Sandbox(SETTINGS, num_workers=2) as sandbox:
        results = list(sandbox.run(jobs))
    *results, of_dicts = results
    number, values = literal(of_dicts.output or "")  # equal dicts, in whatever order
    assert (number, values) == (5, dict.fromkeys("bcdef", 1))
    assert [result.output or result.reason for result in results] == [
        NOT_DETERMINISTIC,
        NOT_LITERAL,  # `object` is a name
        NOT_DETERMINISTIC,
        "{'b', 'c', 'd'}",  # a set has no order
        "raised ValueError",
    ]


def test_a_process_that_is_lost_is_replaced(tmp_path: Path) -> None:
    interpreter = Interpreter(SETTINGS, 1, str(tmp_path))
    os.kill(interpreter._process.pid, 9)
    assert outcome(interpreter, "def f(): return 1") == "1"
    interpreter.end()


def test_a_process_that_is_lost_within_its_answer_is_replaced(tmp_path: Path) -> None:
    interpreter = Interpreter(SETTINGS, 1, str(tmp_path))
    ours, theirs = os.pipe()
    os.write(theirs, b'{"output": ')
    os.close(theirs)
    interpreter._process.stdout = os.fdopen(ours, "rb")
    assert outcome(interpreter, "def f(): return 1") == "1"
    interpreter.end()


def test_one_thread_parses_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SystemError came now and then where several parsed at once."""
    parsed_by = set()

    def parse(source: str, mode: str = "exec") -> ast.AST:
        parsed_by.add(threading.get_ident())
        return compile(source, "<unknown>", mode, ast.PyCF_ONLY_AST)

    monkeypatch.setattr(ast, "parse", parse)
    with Sandbox(SETTINGS, num_workers=3) as sandbox:
        done = list(sandbox.run([("def f(a): return [a]", str(i), 2) for i in range(6)]))
    assert [execution.output for execution in done] == [f"[{i}]" for i in range(6)]
    assert parsed_by == {threading.get_ident()}


def test_no_process_and_no_folder_is_left_behind() -> None:
    with Sandbox(SETTINGS, num_workers=2) as sandbox:
        list(sandbox.run([("def f(a): return a", str(i), 2) for i in range(4)]))
        processes = [interpreter._process for interpreter in sandbox._started]
        folder = Path(sandbox._folder.name)
        assert folder.exists()
        assert 2 <= len(processes) <= 4
    assert all(process.poll() is not None for process in processes)
    assert not folder.exists()


def test_a_kernel_that_confines_nothing_is_refused_unless_a_setting_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is told of a machine whose system calls it does not know."""
    child = tmp_path / "child.py"
    source = Path(sandbox_child.__file__).read_text()
    child.write_text(source.replace("platform.machine()", "'vax'"))
    monkeypatch.setattr("tasks.processes.sandbox.CHILD", child)
    why = r"no filter of system calls for vax.*unconfined=true"
    with pytest.raises(RuntimeError, match=why), Sandbox(SETTINGS) as sandbox:
        list(sandbox.run([("def f(a): return a", "1", 1)]))
    trusting = SETTINGS.model_copy(update={"unconfined": True})
    with Sandbox(trusting) as sandbox:
        (result,) = sandbox.run([("def f(a): return a", "1", 1)])
    assert result.output == "1"


def test_without_a_filter_the_trial_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that accepts the filter and does not obey it, as some emulations do."""
    child = tmp_path / "child.py"
    source = Path(sandbox_child.__file__).read_text()
    child.write_text(source.replace("            confine(libc)\n", "            pass\n"))
    monkeypatch.setattr("tasks.processes.sandbox.CHILD", child)
    why = "system calls were not refused"
    with pytest.raises(RuntimeError, match=why), Sandbox(SETTINGS) as sandbox:
        list(sandbox.run([("def f(a): return a", "1", 1)]))


@pytest.mark.parametrize("machine", sandbox_child.CALLS)
def test_the_filter_allows_the_named_calls_and_refuses_every_other(machine: str) -> None:
    """The filter's own semantics, in a small interpreter of it."""
    architecture, mapping, computing = sandbox_child.CALLS[machine]
    allowed = {*mapping.values(), *computing.values()}
    for number in range(600):
        verdict = filtered(machine, architecture, number, protection=3)
        assert (verdict == sandbox_child.ALLOW) == (number in allowed), number
    for number in mapping.values():
        executable = filtered(machine, architecture, number, protection=5)
        assert executable == sandbox_child.REFUSE
    x32 = filtered(machine, architecture, 0x40000000 | 1, protection=0)
    assert x32 == sandbox_child.REFUSE
    assert filtered(machine, 0x40000003, 1, protection=0) == sandbox_child.KILL_PROCESS


def filtered(machine: str, architecture: int, number: int, protection: int) -> int:
    call = {
        sandbox_child.NUMBER_AT: number,
        sandbox_child.ARCHITECTURE_AT: architecture,
        sandbox_child.PROTECTION_AT: protection,
    }
    rows = sandbox_child.filter_of(machine)
    at = 0
    word = 0
    while True:
        code, yes, no, value = rows[at]
        at += 1
        if code == sandbox_child.LOAD:
            word = call[value]
        elif code == sandbox_child.IF_EQUAL:
            at += yes if word == value else no
        elif code == sandbox_child.IF_ANY_BIT:
            at += yes if word & value else no
        else:
            return value


def test_arguments_are_literals_and_nothing_else() -> None:
    good = {"1 # one": "(1,)", "1,\n'a'": "(1, 'a')", "(1, 2)": "((1, 2),)", "{2, 1}": "({1, 2},)"}
    assert {text: arguments_of(text) for text in good} == good
    bad = (
        "1)",
        "1) or g(2",
        "*[1]",
        "**{}",
        "x",
        "a=1",
        "f(1)",
        "__import__('os')",
        "...",
        "1 +",
        "[x for x in y]",
        "'a' 'b' f",
        "lambda: 1",
        "f'{1}'",
    )
    for text in bad:
        with pytest.raises(ValueError, match=r"no arguments|no literal"):
            arguments_of(text)


@pytest.mark.parametrize(
    "text", ["-" * 9000 + "1", "(" * 9000, "[" * 9000, "not " * 4000 + "1", "1" + "+1j" * 4000,
             "9" * 9000, "a." * 5000, "\0", "\ud800", "{" * 150 + "}" * 150, "'" * 9001]
)  # fmt: skip
def test_texts_that_break_parsers_are_no_literals(text: str) -> None:
    with pytest.raises(ValueError, match="no literal"):
        literal(text)


def test_values_are_compared_here_and_by_value() -> None:
    assert equal("[1, 2]", "[1,2]") and equal("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
    assert equal("1", "True") and not equal("(1,)", "[1]") and not equal("'1'", "1")
    assert canonical("{'b', 'a'}") == "{'a', 'b'}"
    assert canonical("(1,)") == "(1,)" and canonical("set()") == "set()"
