"""Kill parts of a Ray cluster under a run, and compare it with a run without Ray.

`python -m tests.end_to_end.chaos_nodes METHOD --kills N`: the micro-world of a method, first with
processes of this machine, then with all engines and the trainer on two nodes of one core each. The
kinds of kills take turns:

- `actor` and `process`: SIGKILL to the actor of an engine or of the trainer, or to the process
  that it started;
- `raylet`: SIGKILL to a node's raylet; `node`: the whole node at once; then a new node joins;
- `head`: the whole cluster, head included, then a new one starts;
- `flow`: SIGKILL to the flow.

If the flow ends, the command is repeated, as a user would, until the run completes. Runs follow
one another, each in a new store, until all kills have happened. Without kills it measures what the
nodes cost: seconds of rollouts per prompt, seconds per update and seconds from the command to the
first rollouts, as ratios; and what the cluster takes before any run, in seconds and memory. Appends
one JSON line to data/bench/chaos_nodes.jsonl; comparison.py defines what counts as equal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flows.runtime.store_root import SOURCE
from tests.end_to_end.comparison import Comparison, compare
from tests.support.played import RUN, SCRIPT
from tests.support.ray_cluster import Nodes, cluster
from warehouse.store import Store

RESULTS = SOURCE / "data" / "bench" / "chaos_nodes.jsonl"
KINDS = ("actor", "node", "process", "flow", "raylet", "head")
PLACED = {"engine.place": "ray", "trainer_place": "ray"}
TRAINERS = 2  # one on each node
SETTINGS: dict[str, dict[str, Any]] = {
    "scope": {
        "iterations": 1,
        "num_engines": 2,
        "trainer_processes": TRAINERS,
        "challenger.steps": 1,
        "challenger.update.optimizer_steps": 2,
        "solver.steps": 1,
        "solver.update.optimizer_steps": 2,
        "judge.canaries": 60,
        "monitor.max_canary_error": 0.3,
        "monitor.max_judge_minus_oracle": 0.3,
        "evaluation.num_tasks": 48,
    },
    "mae": {
        "iterations": 1,
        "steps": 2,
        "batch_size": 16,
        "num_engines": 2,
        "trainer_processes": TRAINERS,
        "proposer.answers": 2,
        "evaluation.num_tasks": 25,
        "monitor.max_gate_leak": None,
    },
}
WINDOW_S = (5.0, 25.0)  # after the start of the flow, or after the last kill that it survived
POLL_S = 0.2
MOST_RESTARTS = 60


@dataclass
class Clusters:
    """The current cluster, which `renew` replaces."""

    nodes: Nodes
    stack: contextlib.ExitStack

    @classmethod
    def start(cls) -> Clusters:
        stack = contextlib.ExitStack()
        return cls(stack.enter_context(cluster()), stack)

    def renew(self) -> None:
        """Kill the head and all nodes, and start a new cluster."""
        for node in (*self.nodes.nodes, self.nodes.cluster.head_node):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        self.stack.close()
        self.stack = contextlib.ExitStack()
        self.nodes = self.stack.enter_context(cluster())

    def memory_mb(self) -> float:
        """Memory of the cluster's processes in MB; what they share counts once."""
        nodes = (self.nodes.cluster.head_node, *self.nodes.nodes)
        processes = dict[int, psutil.Process]()
        for node in nodes:
            for started in node.all_processes.values():
                for info in started:
                    process = psutil.Process(info.process.pid)
                    for each in (process, *process.children(recursive=True)):
                        processes[each.pid] = each
        return sum(each.memory_full_info().pss for each in processes.values()) / 1e6

    def hosts(self) -> list[psutil.Process]:
        """The actors that have started a process of an engine or of the trainer."""
        actors = list[psutil.Process]()
        for node in self.nodes.nodes:
            raylet = self._raylet(node)
            with contextlib.suppress(psutil.NoSuchProcess):
                for worker in raylet.children():
                    if any(_is_ours(child) for child in worker.children()):
                        actors.append(worker)
        return actors

    @staticmethod
    def _raylet(node: Any) -> psutil.Process:
        return psutil.Process(node.all_processes["raylet"][0].process.pid)

    def kill(self, kind: str, rng: random.Random) -> bool:
        """Kill something of a kind; False if there is nothing of it."""
        if kind == "head":
            self.renew()
            return True
        if kind in ("node", "raylet"):
            node = rng.choice(self.nodes.nodes)
            if kind == "raylet":
                self._raylet(node).kill()
            self.nodes.kill(node)
            self.nodes.add()
            return True
        hosts = self.hosts()
        if not hosts:
            return False
        victim = rng.choice(hosts)
        if kind == "process":
            victim = rng.choice([child for child in victim.children() if _is_ours(child)] or hosts)
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
        return True


def _is_ours(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        words = process.cmdline()
        return "tasks.engines.fleet_child" in words or "tasks.training.member" in words
    return False


@dataclass
class Chaos:
    """The run of one method, and the kills so far by kind."""

    method: str
    rng: random.Random
    settings: dict[str, Any]
    kills: Counter[str] = field(default_factory=Counter)
    commands: int = 0

    def play(self, folder: Path, clusters: Clusters | None, num_kills: int) -> None:
        """Bring the run in `folder` to completion, through at most `num_kills` kills.

        Without `clusters`, all processes run on this machine. Raises RuntimeError, with the end of
        the log, if the flow ends too often, or although nothing was killed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings if clusters is None else {**self.settings, **PLACED}
        script = folder / "play.py"
        script.write_text(SCRIPT.format(method=self.method, run=RUN, settings=settings))
        left = num_kills
        for _ in range(MOST_RESTARTS):
            self.commands += 1
            environment = {
                **os.environ,
                "SELFPLAY_STORE": str(folder / "store"),
                "PYTHONPATH": str(SOURCE),
            }
            with open(folder / "log", "ab") as log:
                flow = subprocess.Popen(
                    [sys.executable, str(script)],
                    cwd=SOURCE,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            before = left
            left = self._disturb(flow, clusters, left)
            if flow.wait() == 0:
                return
            if left == before:
                break
        raise RuntimeError(f"the run does not complete: {(folder / 'log').read_text()[-3000:]}")

    def _disturb(self, flow: subprocess.Popen[bytes], clusters: Clusters | None, left: int) -> int:
        """Kill until the flow ends, or nothing is left to do; returns the kills left."""
        due = time.monotonic() + self.rng.uniform(*WINDOW_S)
        while left and clusters is not None and flow.poll() is None:
            if time.monotonic() > due and self._kill(flow, clusters):
                left -= 1
                due = time.monotonic() + self.rng.uniform(*WINDOW_S)
            time.sleep(POLL_S)
        return left

    def _kill(self, flow: subprocess.Popen[bytes], clusters: Clusters) -> bool:
        """Kill something of the kind that was killed least so far, among kinds that exist now."""
        for kind in sorted(KINDS, key=lambda kind: self.kills[kind]):
            if kind == "flow":
                flow.kill()
            elif not clusters.kill(kind, self.rng):
                continue
            self.kills[kind] += 1
            print(f"{time.strftime('%H:%M:%S')} kill {self.kills.total()}: {kind}", flush=True)
            return True
        return False


@dataclass(frozen=True)
class Seconds:
    """What a run took."""

    a_prompt: float  # rollouts
    an_update: float
    to_first_rollouts: float  # from the command

    @classmethod
    def of(cls, folder: Path) -> Seconds:
        prompts = 0
        sampling = list[float]()
        updates = list[float]()
        ended = list[float]()
        for table in Store(folder / "store").tables(RUN):
            seconds = table.recipe["seconds"]
            if table.schema.name == "rollouts":
                sampling.append(seconds)
                ended.append(table.recipe["started_at"] + seconds)
                prompts += len({row["prompt_id"] for row in table.rows()})
            if table.schema.name == "updates":
                updates.append(seconds)
        command = (folder / "play.py").stat().st_mtime
        return cls(
            a_prompt=sum(sampling) / prompts,
            an_update=sum(updates) / len(updates),
            to_first_rollouts=min(ended) - command,
        )


def make(folder: Path, method: str, num_kills: int, kills_per_run: int, seed: int) -> dict:
    """Run the harness in `folder`; returns the result line."""
    began = time.monotonic()
    chaos = Chaos(method, random.Random(seed), SETTINGS[method])
    print("the run without Ray", flush=True)
    chaos.play(folder / "here", None, 0)
    comparisons = list[Comparison]()
    line: dict[str, Any] = {"name": "chaos_nodes", "method": method}
    starting = time.monotonic()
    clusters = Clusters.start()
    if not num_kills:
        line["cluster_start_s"] = round(time.monotonic() - starting, 1)
        line["cluster_idle_mb"] = round(clusters.memory_mb())
    try:
        for number, kills in enumerate(_shares(num_kills, kills_per_run), start=1):
            print(f"run {number} on nodes, {kills} kill(s)", flush=True)
            chaos.play(folder / f"nodes-{number}", clusters, kills)
            comparisons.append(
                compare(
                    Store(folder / "here" / "store"),
                    Store(folder / f"nodes-{number}" / "store"),
                    RUN,
                )
            )
            for different in comparisons[-1].different[:10]:
                print(f"  differs: {different}", flush=True)
    finally:
        clusters.stack.close()
    if not num_kills:
        here, there = Seconds.of(folder / "here"), Seconds.of(folder / "nodes-1")
        line["prompt_ratio"] = round(there.a_prompt / here.a_prompt, 2)
        line["update_ratio"] = round(there.an_update / here.an_update, 2)
        line["first_rollouts_ratio"] = round(there.to_first_rollouts / here.to_first_rollouts, 2)
        line["first_rollouts_s"] = round(there.to_first_rollouts, 1)
    return line | {
        "kills": chaos.kills.total(),
        "by_kind": dict(sorted(chaos.kills.items())),
        "runs": len(comparisons),
        "commands": chaos.commands,
        "rows_lost": sum(each.rows_lost for each in comparisons),
        "rows_doubled": sum(each.rows_doubled for each in comparisons),
        "tables_equal": all(each.equal for each in comparisons),
        "seed": seed,
        "wall_s": round(time.monotonic() - began),
    }


def _shares(num_kills: int, kills_per_run: int) -> Iterator[int]:
    """The kills of each run; one run without any if there are none."""
    yield min(num_kills, kills_per_run)
    for done in range(kills_per_run, num_kills, kills_per_run):
        yield min(num_kills - done, kills_per_run)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=sorted(SETTINGS))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--kills-per-run", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos") as folder:
        line = make(Path(folder), args.method, args.kills, args.kills_per_run, args.seed)
    print(json.dumps(line, indent=1))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with open(RESULTS, "a") as file:
        file.write(json.dumps(line) + "\n")
    sys.exit(0 if line["tables_equal"] else 1)


if __name__ == "__main__":
    main()
