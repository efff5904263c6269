"""A process that runs untrusted programs, one after another, for `tasks.processes.sandbox`.

It is started as `python -s -S -P sandbox_child.py`, without an environment, in an empty folder. It
uses only the standard library, and reads and writes one JSON object per line.

Each program runs in a fork of this process. The fork closes every file, limits its own CPU time and
memory, and asks the kernel to refuse all system calls except those needed for computing (seccomp,
which works without privileges, even in containers). It can then only compute and write to one pipe:
it cannot open files, start processes or threads, create sockets or send signals. Modules are
therefore imported before the fork; no others can be imported after it.

A program shares its process with the code that reports its result, so a hostile program can report
any output, exception or error. It gains nothing by that: its report counts no more than what `f`
returns. It can never report a fault of the sandbox.
"""

import ast
import ctypes
import gc
import importlib
import json
import os
import platform
import resource
import select
import signal
import sys
import time

# What programs may import in addition to the interpreter's built-in modules. None of these gives
# access to the outside.
MODULES = (
    "abc",
    "array",
    "base64",
    "binascii",
    "bisect",
    "cmath",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "dataclasses",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "graphlib",
    "heapq",
    "itertools",
    "json",
    "keyword",
    "math",
    "numbers",
    "operator",
    "pprint",
    "re",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
)
NO_LITERAL = "its output is no literal"
TOO_LONG = "its output is too long"
NOT_CONFINED = "not confined"  # the report of a test program that is not confined
RESULT = 3  # the descriptor of the pipe to which a fork writes its result
LITERALS = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set}
MOST_PARTS = 100_000  # maximum parts of an output; a list that contains itself has more
MOST_OF_A_NAME = 100  # maximum characters of an exception's name
ENDS_WITHIN_MS = 1_000  # after its pipe is closed

# The kernel's interface: linux/seccomp.h, linux/filter.h, linux/audit.h, linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
KILL_PROCESS = 0x80000000
REFUSE = 0x00050000 | 1  # the call fails with EPERM
ALLOW = 0x7FFF0000
LOAD = 0x20  # a word of the call's description: its number, its architecture, its arguments
IF_EQUAL = 0x15
IF_ANY_BIT = 0x45
RETURN = 0x06
NUMBER_AT = 0
ARCHITECTURE_AT = 4
PROTECTION_AT = 32  # the third argument of mmap and of mprotect
PROT_EXEC = 4
# Architecture -> its number in linux/audit.h, the calls that map memory, the calls for computing.
# None of them gives random bits or sleeps. The clock can be read without a call (vDSO): an output
# that depends on it is revealed by running the program twice.
CALLS = {
    "x86_64": (
        0xC000003E,
        {"mmap": 9, "mprotect": 10},
        {
            "read": 0,
            "write": 1,
            "close": 3,
            "munmap": 11,
            "brk": 12,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "mremap": 25,
            "madvise": 28,
            "getpid": 39,
            "exit": 60,
            "sigaltstack": 131,
            "gettid": 186,
            "futex": 202,
            "restart_syscall": 219,
            "exit_group": 231,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {"mmap": 222, "mprotect": 226},
        {
            "close": 57,
            "read": 63,
            "write": 64,
            "exit": 93,
            "exit_group": 94,
            "futex": 98,
            "restart_syscall": 128,
            "sigaltstack": 132,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "getpid": 172,
            "gettid": 178,
            "brk": 214,
            "munmap": 215,
            "mremap": 216,
            "madvise": 233,
        },
    ),
}


class Instruction(ctypes.Structure):
    """struct sock_filter: skip `yes` or `no` instructions."""

    _fields_ = [
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def filter_of(machine):
    """The system call filter for an architecture, as rows (code, yes, no, value)."""
    architecture, mapping, computing = CALLS[machine]
    rows = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (IF_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    # After the tests of call numbers come: refuse, load the protection, test it, refuse, allow.
    num_tests = len(mapping) + len(computing)
    for i, number in enumerate(mapping.values()):
        rows.append((IF_EQUAL, num_tests - i, 0, number))
    for i, number in enumerate(computing.values(), start=len(mapping)):
        # skip the remaining tests and the four rows after them: allow
        rows.append((IF_EQUAL, num_tests - i + 3, 0, number))
    rows += [
        (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, PROTECTION_AT),
        (IF_ANY_BIT, 0, 1, PROT_EXEC),  # no machine code of the program's own
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    return rows


def confine(libc):
    """Permanently deny this process all system calls except those in `CALLS`. Raises OSError."""
    machine = platform.machine()
    if machine not in CALLS:
        raise OSError(f"no filter of system calls for {machine}")
    rows = filter_of(machine)
    instructions = (Instruction * len(rows))(*rows)
    program = Program(len(rows), instructions)
    for call in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "the kernel offers no filter of system calls")


def limit(job):
    """Limit the resources of this process. Soft and hard limits are equal, so it cannot raise them;
    after its time is up it gets SIGKILL, which it cannot catch."""
    bounds = (
        (resource.RLIMIT_CPU, job["cpu_s"]),
        (resource.RLIMIT_AS, job["memory_bytes"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, RESULT + 1),
    )
    for what, most in bounds:
        resource.setrlimit(what, (most, most))


def is_literal(value):
    """Whether a value consists only of built-in types, so that its text fully describes it."""
    waiting = [value]
    num_parts = 0
    while waiting:
        part = waiting.pop()
        num_parts += 1
        if type(part) not in LITERALS or num_parts > MOST_PARTS:
            return False
        if type(part) in (float, complex) and part - part != 0:
            return False  # nan and infinity have no literal
        if type(part) is dict:
            waiting += part.keys()
            waiting += part.values()
        elif type(part) in (list, tuple, set):
            waiting += part
    return True


def result_of(job):
    """The result of a job's program: the text of what its `f` returns as `output`, the name of the
    exception that it raises as `error`, or the `reason` why its output does not count."""
    try:
        arguments = ast.literal_eval(job["arguments"])
        space: dict = {"__name__": "program"}
        exec(compile(job["program"], "program", "exec"), space)
        value = space["f"](*arguments)
        if not is_literal(value):
            return {"reason": NO_LITERAL}
        try:
            return {"output": repr(value)}
        except ValueError:  # an integer with more digits than Python writes
            return {"reason": TOO_LONG}
    except BaseException as problem:  # including SystemExit
        return {"error": type(problem).__name__[:MOST_OF_A_NAME]}


def run_confined(libc, job, pipe):
    """Run a job in this fork, write its result to the pipe, and end."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(pipe, 100)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.dup2(100, RESULT)
    os.closerange(RESULT + 1, 1 << 16)
    for name in ("ctypes", "_ctypes", "select", "resource", "platform", "subprocess"):
        sys.modules.pop(name, None)
    try:
        limit(job)
        if not job["unconfined"]:
            confine(libc)
    except Exception as problem:
        report({"reason": f"{NOT_CONFINED}: {problem}"})
        os._exit(1)
    report(result_of(job))
    os._exit(0)


def report(result, write=os.write, dumps=json.dumps):
    """Write a result to the descriptor RESULT. A program may have replaced functions in modules,
    but not these arguments."""
    text = dumps(result).encode()
    while text:
        text = text[write(RESULT, text) :]


def played(libc, job):
    """A job's result, from a fork that is killed if it takes too long or writes too much."""
    began = time.monotonic()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        run_confined(libc, job, theirs)
    os.close(theirs)
    said = b""
    reason = None
    while reason is None:
        left_s = began + job["wall_s"] - time.monotonic()
        if left_s <= 0:
            reason = "wall-clock limit"
        elif select.select([ours], [], [], left_s)[0]:
            part = os.read(ours, 1 << 16)
            if not part:
                break
            said += part
            if len(said) > job["output_bytes"]:
                reason = TOO_LONG
    os.close(ours)
    has_ended = reason is None and ends(child)
    os.kill(child, signal.SIGKILL)
    status, usage = os.wait4(child, 0)[1:]
    if not has_ended:
        status = 0  # it had to be killed by this process
    result = {"reason": reason} if reason else read(said, status, usage, job)
    return {**result, "seconds": time.monotonic() - began}


def ends(child):
    """Whether a fork whose pipe is closed ends by itself; it may have only closed the pipe."""
    for _ in range(ENDS_WITHIN_MS):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.001)
    return False


def read(said, status, usage, job):
    """The result of a fork that ended by itself or was killed by the kernel. `status` is 0 if it
    had to be killed here. A fork may give only the reasons that it can know."""
    try:
        result = json.loads(said)
        known = {name: result[name] for name in ("output", "error", "reason") if name in result}
        is_text = len(known) == 1 and all(isinstance(text, str) for text in known.values())
        reason = known.get("reason", NO_LITERAL)
        if is_text and (reason in (NO_LITERAL, TOO_LONG) or reason.startswith(NOT_CONFINED)):
            return known
    except (ValueError, TypeError, RecursionError):
        pass
    if not os.WIFSIGNALED(status):
        return {"reason": "it ended without a result"}
    name = signal.Signals(os.WTERMSIG(status)).name
    if name != "SIGKILL":
        return {"reason": f"crashed: {name}"}
    # The kernel enforces the limit in ticks, but reports the usage more precisely.
    if usage.ru_utime + usage.ru_stime >= 0.5 * job["cpu_s"]:
        return {"reason": "time limit"}
    return {"reason": "killed by the system"}


def main():
    """Answer jobs until stdin ends: each line is a job as JSON, its result one line on stdout."""
    for name in MODULES:
        importlib.import_module(name)
    libc = ctypes.CDLL(None, use_errno=True)
    gc.freeze()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(json.dumps(played(libc, json.loads(line))).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
