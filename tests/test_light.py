"""What a light install tests: rewards, readers, SQL and the warehouse. A full install tests
everything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from flows.runtime.store_root import SOURCE
from tests.support.light import ASIDE, FOLDERS, needs

MODELS = (  # whatever runs a model
    "corpus_prep/search/encoder.py",
    "corpus_prep/search/vectors.py",
    "data/micro/training/",
    "tasks/engines/cpu_lora.py",
    "tasks/engines/vllm.py",
    "tasks/training/",
    "tests/",
)


def test_only_what_runs_a_model_needs_a_large_package() -> None:
    files = [
        path.relative_to(SOURCE).as_posix()
        for folder in FOLDERS
        for path in (SOURCE / folder).rglob("*.py")
        if needs(path)
    ]
    assert "tasks/training/trainer.py" in files
    assert [path for path in files if not path.startswith(MODELS)] == []


def test_what_stands_aside_stands_there() -> None:
    assert [path for path in ASIDE if not (SOURCE / "tests" / path).is_file()] == []


def test_what_a_file_imports_by_way_of_others_counts_and_what_a_function_imports_does_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "far.py").write_text("from tests.support import reference_grpo\n")
    (tmp_path / "lazy.py").write_text("def f():\n    import torch\n")
    assert needs(tmp_path / "far.py") == {"torch"}
    assert needs(tmp_path / "lazy.py") == set()


def test_a_light_run_skips_what_needs_a_model_and_says_so() -> None:
    files = ["tests/tasks/rollouts/test_tokens.py", "tests/tasks/test_update.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--light",
        "-m",
        "not slow",
        *files,
    ]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SKIPPED .* needs trl", done.stdout) and re.search(
        r"SKIPPED .* needs torch", done.stdout
    )
    left_out = re.search(
        r"--light left out .* (\d+) files and (\d+) tests that need .*torch", done.stdout
    )
    assert left_out and int(left_out[1]) > 20 and int(left_out[2]) >= 4
    assert " passed" in done.stdout
