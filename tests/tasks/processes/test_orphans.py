"""A child process ends with its parent, even if the parent had ended before the child could look
for it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil

from tasks.processes.child_process import PARENT, parent_variables

REPO = Path(__file__).resolve().parents[3]
CHILD = (
    "from tasks.processes.child_process import die_with_parent; die_with_parent(); import time;"
    " time.sleep(3600)"
)


def start(environment: dict[str, str]) -> psutil.Process:
    """A child whose parent ended before the child ran a line; the environment holds the parent's
    id."""
    starter = f"""
        import os, subprocess, sys
        from tasks.processes.child_process import parent_variables
        environment = os.environ | {environment!r}
        child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=environment | parent_variables())
        print(child.pid, flush=True)
        os._exit(0)
    """  # noqa: E501
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(starter)],
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return psutil.Process(int(told.stdout))


def test_a_child_whose_parent_was_gone_at_once_ends_too():
    try:
        child = start({})
    except psutil.NoSuchProcess:
        return  # it has ended already
    child.wait(timeout=600)


def test_a_child_is_told_who_its_parent_is():
    assert parent_variables() == {PARENT: str(os.getpid())}


def test_a_child_lives_as_long_as_its_parent():
    code = f"{CHILD.replace('time.sleep(3600)', 'time.sleep(3)')}; print('whole')"
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        env=os.environ | parent_variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "whole\n"
