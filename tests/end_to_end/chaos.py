"""Break a run at random, resume it, and compare it with an undisturbed run: `make chaos N=50`.

Both runs have the same name in separate stores, so addresses, ids and seeds are the same. After
every fault the command is repeated, as a user would, until the run completes. Runs follow one
another, each in a new store, until all faults have happened. The kinds of faults take turns:

- SIGKILL to the flow, its engine, its trainer, the worker, the server, or all of them, as when the
  machine restarts;
- SIGSTOP to one of them for up to 20 s (`stop`), or to the flow until the server gives it up after
  two minutes (`silence`): the flow then wakes up to find this, or is still stopped when the command
  is repeated;
- a file truncated to half or to nothing (`damage`), and a clock that steps by an hour (`clock`).

Throughout, another user's folder is in the way. Appends one JSON line to data/bench/chaos.jsonl;
comparison.py defines what counts as equal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from flows.app.service import services
from flows.app.service.api import API, ENDED
from flows.app.service.site import Site
from flows.runtime.store_root import SOURCE
from tests.end_to_end.comparison import Comparison, compare
from tests.end_to_end.faults import damage, occupy, pause, silence, step_clock
from warehouse.store import Store

RESULTS = SOURCE / "data" / "bench" / "chaos.jsonl"
DEPLOYMENT = "scope-iteration/micro"
RUN = "chaos"
SETTINGS = {
    "iterations": 2,
    "num_engines": 1,
    "challenger.steps": 2,
    "challenger.update.optimizer_steps": 2,
    "solver.steps": 2,
    "solver.update.optimizer_steps": 2,
    "judge.canaries": 60,
    "monitor.max_canary_error": 0.3,
    "monitor.max_judge_minus_oracle": 0.3,
    "evaluation.num_tasks": 96,
}
PROCESSES = ("flow", "worker", "engine", "trainer", "server")
KINDS = (*PROCESSES, "all", "stop", "silence", "damage", "clock")
WINDOW_S = (1.0, 25.0)  # after the flow's start, or after the last fault that it survived
GIVEN_UP_S = services.SILENCE_S + 60.0


@dataclass
class Chaos:
    """The harness: its own services, the faults so far by kind, and when the last one may begin."""

    site: Site
    rng: random.Random
    settings: dict[str, Any]
    until: float = math.inf
    faults: Counter[str] = field(default_factory=Counter)
    recovery_s: list[float] = field(default_factory=list)
    damaged: bool = False  # since the command was last repeated

    def play(self, store: Path, num_faults: int) -> None:
        """Bring the run in `store` to completion, through at most `num_faults` faults."""
        os.environ["SELFPLAY_STORE"] = str(store)
        for worker in self.site.processes("worker-"):  # the next one passes on the new environment
            worker.stop()
        left = num_faults
        self.damaged = False
        while True:
            api = services.up(self.site, say=_quiet)
            again, self.damaged = self.damaged, False
            run = api.submit(
                DEPLOYMENT, {"profile": "micro", "run": RUN, "overrides": self.settings}
            )
            state, left = self.follow(api, store, run["id"], left)
            # else it may have passed the damaged file before
            if state == "COMPLETED" and not self.damaged:
                return
            if left == num_faults and not again:
                raise RuntimeError(
                    f"the run ended as {state} though nothing was broken: see {self.site.logs}"
                )

    def follow(self, api: API, store: Path, run_id: str, left: int) -> tuple[str, int]:
        """Wait until the flow run ends; returns its last state and the number of faults left."""
        due = time.monotonic() + self.rng.uniform(*WINDOW_S)
        while True:
            try:
                services.crash_dead_runs(self.site, api, _quiet)
                state = api.flow_run(run_id)["state_type"]
            except httpx.TransportError:
                services.up(self.site, say=_quiet)
                continue
            if state in ENDED:
                return state, left
            if (
                left
                and due < time.monotonic() < self.until
                and state == "RUNNING"
                and self.disturb(api, store, run_id)
            ):
                left -= 1
                began = time.monotonic()
                services.up(self.site, say=_quiet)
                self.recovery_s.append(time.monotonic() - began)
                due = time.monotonic() + self.rng.uniform(*WINDOW_S)
            time.sleep(0.2)

    def disturb(self, api: API, store: Path, run_id: str) -> bool:
        """Cause a fault of one of the kinds used least so far; False if none of them is possible
        now."""
        fewest = min(self.faults[kind] for kind in KINDS)
        rarest = [kind for kind in KINDS if self.faults[kind] == fewest]
        self.rng.shuffle(rarest)
        for kind in rarest:
            if self.fault(kind, api, store, run_id):
                self.faults[kind] += 1
                print(
                    f"{time.strftime('%H:%M:%S')} fault {self.faults.total()}: {kind}", flush=True
                )
                return True
        return False

    def fault(self, kind: str, api: API, store: Path, run_id: str) -> bool:
        """Cause a fault of this kind; False if there is nothing that it could hit now."""
        if kind in (*PROCESSES, "all"):
            killed = PROCESSES if kind == "all" else (kind,)
            return kill([victim for name in killed for victim in self.processes(name, run_id)])
        if kind == "stop":
            return pause(self.processes(self.rng.choice(PROCESSES), run_id), self.rng)
        if kind == "silence":
            flow = self.processes("flow", run_id)
            return silence(
                flow, lambda: api.flow_run(run_id)["state_type"] in ENDED, GIVEN_UP_S, self.rng
            )
        if kind == "damage":
            cut = damage(store, self.site.home / "pids", self.rng)
            self.damaged |= cut
            return cut
        return step_clock([store, self.site.home / "pids"], self.rng)

    def processes(self, kind: str, run_id: str) -> list[psutil.Process]:
        name = {"flow": f"flow-{run_id}", "worker": "worker-cpu", "server": "server"}.get(kind)
        if name:
            return [p] if (p := self.site.process(name).find()) else []
        flow = self.site.process(f"flow-{run_id}").find()
        mark = {"engine": "tasks.engines.fleet_child", "trainer": "tasks.training.member"}
        try:
            children = flow.children(recursive=True) if flow else []
            return [
                child for child in children if any(mark[kind] in word for word in child.cmdline())
            ]
        except psutil.NoSuchProcess:
            return []


def kill(victims: list[psutil.Process]) -> bool:
    """Send SIGKILL; False if there is no process."""
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    psutil.wait_procs(victims, timeout=10.0)
    return bool(victims)


def _quiet(_: str) -> None:
    return


def make(
    folder: Path,
    num_faults: int,
    seed: int,
    faults_per_run: int,
    settings: dict[str, Any] | None = None,
    limit_s: float = math.inf,
) -> dict[str, Any]:
    """Run the harness in `folder`; returns the result line. After `limit_s` no more faults
    begin."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        site = Site(SOURCE, folder / "prefect", probe.getsockname()[1])
    found = list[Comparison]()
    began = time.monotonic()
    chaos = Chaos(site, random.Random(seed), settings or SETTINGS, began + limit_s)
    try:
        occupy(folder / "tmp")
        os.environ["TMPDIR"] = str(folder / "tmp")
        print("the untouched run", flush=True)
        chaos.play(folder / "untouched", 0)
        while chaos.faults.total() < num_faults and time.monotonic() < chaos.until:
            shutil.rmtree(folder / "broken", ignore_errors=True)
            print(f"run {len(found) + 1} under fire", flush=True)
            chaos.play(folder / "broken", min(faults_per_run, num_faults - chaos.faults.total()))
            found.append(compare(Store(folder / "untouched"), Store(folder / "broken"), RUN))
            for line in found[-1].different[:10]:
                print(f"  differs: {line}", flush=True)
    finally:
        services.down(site, say=_quiet)
    return {
        "name": "chaos",
        "faults": chaos.faults.total(),
        "by_kind": dict(sorted(chaos.faults.items())),
        "runs": len(found),
        "rows_lost": sum(f.rows_lost for f in found),
        "rows_doubled": sum(f.rows_doubled for f in found),
        "tables_equal": all(f.equal for f in found),
        "runs_equal": sum(f.equal for f in found),
        "services_back_s": round(max(chaos.recovery_s, default=0.0), 1),
        "seed": seed,
        "wall_s": round(time.monotonic() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", type=int, nargs="?", default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults-per-run", type=int, default=10)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no fault after this time"
    )
    parser.add_argument("--folder", type=Path, default=SOURCE / "data" / "chaos")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    line = make(args.folder, args.faults, args.seed, args.faults_per_run, limit_s=60 * args.minutes)
    print(json.dumps(line, indent=1))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with open(RESULTS, "a") as file:
        file.write(json.dumps(line) + "\n")
    sys.exit(0 if line["tables_equal"] else 1)


if __name__ == "__main__":
    main()
