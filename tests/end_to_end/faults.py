"""Faults other than kills that `make chaos` brings about: processes that stand still, some until they are given up,
damaged files, clocks that step, another user's folder in the way."""

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
BACK_S = (0.0, 8.0)  # a flow that comes back looks every five seconds whether it was given up
STEP_S = 3600.0


def pause(processes: Sequence[psutil.Process], rng: random.Random) -> bool:
    """SIGSTOP, and SIGCONT a while later. False where none of them is there any more."""
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


def silence(flow: Sequence[psutil.Process], given_up: Callable[[], bool], limit_s: float, rng: random.Random) -> bool:
    """SIGSTOP until the server gives the flow run up. In half of the cases SIGCONT, and a while to notice that. False
    where there is no flow, or where it was not given up within `limit_s`."""
    if not flow:
        return False
    flow[0].suspend()
    over, end = False, time.monotonic() + limit_s
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
    """Cut a file to half, or to nothing: of a published table, its recipe, the files beside its rows (weights, an
    optimizer's state), an unfinished table or update, the database of views, remembered hashes or a pid file. False
    where there is no such file."""
    below = ("runs/chaos/**/part-*.parquet", "runs/chaos/**/recipe.json", "runs/chaos/**/files/**/*", "unfinished/**/*")
    found = [store.glob(pattern) for pattern in (*below, "*.duckdb", "model-hashes.json")]
    kinds = [sorted(path for path in paths if path.is_file()) for paths in (*found, pids.glob("flow-*.json"))]
    files = rng.choice([kind for kind in kinds if kind] or [[]])
    if not files:
        return False
    file = rng.choice(files)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 if rng.random() < 0.5 else 0])
    print(f"  damaged: {file}", flush=True)
    return True


def step_clock(folders: Sequence[Path], rng: random.Random) -> bool:
    """Let all files be an hour older or younger than they are, as after a step of the clock: its own belongs to the
    whole machine. The time at which a published file was last changed is part of what is checked, too."""
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
    """Let another user have been here before: what Prefect's worker would make in the temporary folder is there, and
    is nothing that it could use."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "runner_storage").write_text("mine")
