"""vLLM is kept out of processes that train, including those of tests; what needs it is tested in
a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "support" / "cpu_lora_cases.py"


@pytest.mark.needs("vllm")
def test_lora_products_by_group_equal_vllms_own_and_the_formula():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--noconftest",
            "-p",
            "no:xdist",
            "-o",
            "addopts=",
            str(CASES),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
