"""The faults of `make chaos` other than kills: stopped processes, some until the server gives them
up; damaged files; clocks that step; another user's folder in the way."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import psutil

PAUSE_S = (1.0, 20.0)
POLL_S = 1.0
BACK_S = (0.0, 8.0)  # a flow that resumes checks every five seconds whether it was given up
STEP_S = 3600.0


def pause(processes: Sequence[psutil.Process], rng: random.Random) -> bool:
    """SIGSTOP, and SIGCONT a while later. False if none of the processes exists any more."""
    stopped = []
    for process in processes:
        try:
            process.suspend()
            stopped.append(process)
        except psutil.NoSuchProcess:
            continue
    time.sleep(rng.uniform(*PAUSE_S) if stopped else 0)
    for process in stopped:
        try:
            process.resume()
        except psutil.NoSuchProcess:
            continue
    return bool(stopped)


def silence(
    flow: Sequence[psutil.Process], given_up: Callable[[], bool], limit_s: float, rng: random.Random
) -> bool:
    """SIGSTOP until the server gives up the flow run; in half of the cases SIGCONT then, and time
    to notice. False if there is no flow, or if it was not given up within `limit_s`."""
    if not flow:
        return False
    flow[0].suspend()
    over = False
    end = time.monotonic() + limit_s
    while not over and time.monotonic() < end:
        time.sleep(POLL_S)
        with contextlib.suppress(httpx.TransportError, RuntimeError):
            over = given_up()
    if not over or rng.random() < 0.5:
        with contextlib.suppress(psutil.NoSuchProcess):
            flow[0].resume()
        time.sleep(rng.uniform(*BACK_S))
    return over


def damage(store: Path, pids: Path, rng: random.Random) -> bool:
    """Truncate a file to half, or to nothing: of a published table, its recipe, the files beside
    its rows (weights, an optimizer state), an unfinished table or update, the database of views,
    cached hashes or a pid file. False if there is no such file."""
    below = (
        "runs/chaos/**/part-*.parquet",
        "runs/chaos/**/recipe.json",
        "runs/chaos/**/files/**/*",
        "unfinished/**/*",
    )
    found = [store.glob(pattern) for pattern in (*below, "*.duckdb", "model-hashes.json")]
    kinds = [
        sorted(path for path in paths if path.is_file())
        for paths in (*found, pids.glob("flow-*.json"))
    ]
    files = rng.choice([kind for kind in kinds if kind] or [[]])
    if not files:
        return False
    file = rng.choice(files)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 if rng.random() < 0.5 else 0])
    print(f"  damaged: {file}", flush=True)
    return True


def step_clock(folders: Sequence[Path], rng: random.Random) -> bool:
    """Make all files an hour older or newer, as after a step of the clock.

    The clock itself cannot be changed for a single test. Modification times of published files are
    part of what the store checks.
    """
    step = rng.choice((-STEP_S, STEP_S))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in files:
        try:
            found = path.stat()
            os.utime(path, (found.st_atime + step, found.st_mtime + step))
        except FileNotFoundError:
            continue
    return bool(files)


def occupy(scratch: Path) -> None:
    """Pretend that another user was here first: what Prefect's worker would create in the temporary
    folder exists, and the worker cannot use it."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "runner_storage").write_text("mine")
