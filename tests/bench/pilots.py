"""What pilots predict of runs, and what the runs then do: `python -m tests.bench.pilots [NAME]`.

Pilots and plays each combination of model, method and corpus in the store that SELFPLAY_STORE
names, and appends a line to data/bench/pilots.jsonl: the pilot's verdict, and the held-out score
before and after. Half of the combinations are built-in worlds as they are, half are spoilt. Without
names it plays all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.method import Method
from flows.pilot.play import play_pilot
from flows.pilot.signals import measure
from flows.pilot.verdict import Verdict, judge
from flows.runtime.machines import MachinePool
from flows.runtime.request import Request
from flows.runtime.store_root import open_store
from flows.runtime.unread import UnreadError
from flows.settings.profile import MethodSettings
from tasks.monitors.monitor import Alarm
from tasks.reports.learning import gain
from warehouse.query import query
from warehouse.schemas import Row
from warehouse.store import Store

BENCH = Path(__file__).parents[2] / "data" / "bench" / "pilots.jsonl"
LEAST_GAIN = 0.05  # of the held-out score: less is not learning, however certain
LEAST_ERRORS = 2.0  # a gain in standard errors
SETTINGS: dict[str, Any] = {"iterations": 2, "num_engines": 1}
SCORES = """
    select iteration, score, standard_error
    from evaluations
    where run = $run and benchmark = $benchmark and metric = 'score'
    order by iteration
"""


@dataclass(frozen=True)
class Combination:
    """A method's profile `micro` with other settings; `spoilt` says what is wrong with them."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    spoilt: str | None = None


METHODS = ("scope", "spell", "spice", "eapo", "mae", "rzero", "ttrl", "azr", "ssp", "goose")
NO_PROBES: dict[str, Any] = {"probes.checkpoints": []}  # SPICE's, of three iterations
COMBINATIONS = {
    **{name: Combination(name) for name in METHODS if name != "spice"},
    "spice": Combination("spice", NO_PROBES),
    "rzero, encyclopaedia": Combination(
        "rzero", {"models.base": "data/micro/base"}, "a model that knows no ledgers"
    ),
    "ssp, ledgers": Combination(
        "ssp", {"models.base": "data/micro/spice"}, "a model that knows no searches"
    ),
    "goose, ledgers": Combination(
        "goose", {"models.base": "data/micro/spice-long"}, "a model that never saw a mask"
    ),
    "mae, ledgers": Combination(
        "mae", {"models.base": "data/micro/spice"}, "a model that knows no marks"
    ),
    "ttrl, always the same answer": Combination(
        "ttrl", {"dialogues.temperature": 0.01}, "all answers to a question are equal"
    ),
    "azr, always the same reply": Combination(
        "azr", {"dialogues.temperature": 0.01}, "all replies to a prompt are equal"
    ),
    "spice, marks by chance": Combination(
        "spice",
        NO_PROBES | {"errors": {"shape": "independent", "share": 0.5}},
        "half of the verdicts are wrong",
    ),
    "spice, a third wrong": Combination(
        "spice",
        NO_PROBES | {"errors": {"shape": "independent", "share": 0.33}},
        "a third of verdicts is wrong",
    ),
    "spell, permuted rewards": Combination(
        "spell", {"controls.permuted": True}, "the rewards of a question's answers are permuted"
    ),
    "scope, narrow window": Combination(
        "scope", {"pool.window": [0.49, 0.51]}, "hardly a task is within the window"
    ),
}


def play(name: str, combination: Combination, pool: MachinePool) -> Row:
    """Pilot a combination, play its run, and return what was said and what happened."""
    module = importlib.import_module(f"flows.{combination.method}.flow")
    method: Method = getattr(module, f"{combination.method}_iteration")
    run = name.replace(",", "").replace(" ", "-")
    overrides = {**SETTINGS, **combination.settings}
    request = Request(flow=method.name, profile="micro", run=run, overrides=overrides)
    cfg = method.load(request)
    assert isinstance(cfg, MethodSettings)
    started = time.monotonic()
    verdict = judge(measure(open_store(), run, cfg, play_pilot(method, request, pool=pool)))
    piloted = time.monotonic()
    stopped = None
    try:
        method.run(request, pool=pool)
    except (Alarm, UnreadError) as stop:
        stopped = str(stop).splitlines()[0]
    happened = outcome(open_store(), run, cfg.evaluation.benchmark, stopped)
    return {
        "name": name,
        "flow": method.name,
        "spoilt": combination.spoilt,
        "settings": combination.settings,
        "verdict": verdict.outlook,
        "because": [reason.problem for reason in verdict.reasons],
        **happened,
        "agrees": agrees(verdict, happened["learnt"]),
        "pilot_seconds": round(piloted - started),
        "run_seconds": round(time.monotonic() - piloted),
        "day": time.strftime("%Y-%m-%d"),
    }


def agrees(verdict: Verdict, learnt: bool) -> bool | None:
    """Whether a run did what its pilot said; None if that was a weak signal, which fits both."""
    if verdict.outlook == "weak signal":
        return None
    return learnt == (verdict.outlook == "will learn")


def outcome(store: Store, run: str, benchmark: str, stopped: str | None) -> Row:
    """The first and the last held-out score, the gain with its standard error, and whether that is
    learning."""
    scores = query(store.root, SCORES, {"run": run, "benchmark": benchmark})
    gained = gain(scores)
    learnt = False
    if gained is not None:
        difference, error = gained
        learnt = difference >= max(LEAST_GAIN, LEAST_ERRORS * (error or 0.0))
    return {
        "stopped": stopped,
        "before": scores[0]["score"] if scores else None,
        "after": scores[-1]["score"] if len(scores) > 1 else None,
        "gain": gained and gained[0],
        "standard_error": gained and gained[1],
        "learnt": learnt,
    }


def main() -> None:
    """Play the combinations that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"combinations to play, of {'; '.join(COMBINATIONS)} (default: all)",
    )
    names = parser.parse_args().names
    if unknown := set(names) - set(COMBINATIONS):
        parser.error(f"there is no combination {', '.join(sorted(unknown))}")
    with contextlib.closing(MachinePool()) as pool:
        for name in names or COMBINATIONS:
            row = play(name, COMBINATIONS[name], pool)
            print(json.dumps(row, indent=1), flush=True)
            with BENCH.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
