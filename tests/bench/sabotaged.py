"""Runs that are sabotaged in one way each, really played: `python -m tests.bench.sabotaged [NAME]`.

Plays each run in the store that SELFPLAY_STORE names, over few tasks, and asks the rules of
`selfplay findings` after each iteration. Appends a line to data/bench/sabotaged.jsonl: the rules
that should speak, and those that do, with their sentences. The first run, `healthy`, has the same
settings without a sabotage. Without names it plays all.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import flows.run
from flows.app.findings import findings
from flows.method import Method
from flows.run import Role, Run
from flows.runtime.machines import MachinePool
from flows.runtime.request import Request
from flows.runtime.store_root import open_store
from flows.scope import roles as scope_roles
from flows.scope import steps as scope_steps
from flows.scope.flow import scope_iteration
from flows.spice import readers as spice_readers
from flows.spice.flow import spice_iteration
from flows.ttrl.flow import ttrl_iteration
from flows.worlds.ledgers import held_out_tasks
from tasks.models.engine import Policy
from tasks.monitors.monitor import Alarm
from warehouse.schemas import Row
from warehouse.store import Store

BENCH = Path(__file__).parents[2] / "data" / "bench" / "sabotaged.jsonl"
SPICE: dict[str, Any] = {
    "iterations": 1,
    "steps": 2,
    "documents_per_step": 12,
    "num_engines": 1,
    "corpora": {"micro-mathematics": 0.5, "micro-general": 0.5},
    "corpus_documents": 200,
    "evaluation.num_tasks": 48,
    "probes.checkpoints": [0],
    "probes.num_documents": 4,
    "probes.attempts": 2,
}
SCOPE: dict[str, Any] = {
    "iterations": 1,
    "num_engines": 1,
    "corpus_documents": 200,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 4,
    "pool.candidates_per_batch": 96,
    "pool.max_batches": 1,
    "solver.steps": 3,
    "solver.prompts_per_step": 8,
    "judge.canaries": 40,
    "information.num_tasks": 0,
    "evaluation.num_tasks": 24,
}
DEAF = {  # limits that would stop a run before its updates
    "monitor.max_judge_minus_oracle": 1.0,
    "monitor.max_judge_error": 1.0,
    "monitor.max_canary_error": 1.0,
    "monitor.max_gate_leak": 1.0,
    "monitor.max_reference_error": 1.0,
    "monitor.min_kept_ratio": 0.0,
}


@dataclass(frozen=True)
class Sabotage:
    """A run that is spoilt in one way, and the rules that should say so."""

    method: Method
    profile: str
    settings: dict[str, Any]
    expected: tuple[str, ...]
    spoil: Callable[[], contextlib.AbstractContextManager[Any]] = field(
        default=contextlib.nullcontext
    )


def stale_policy() -> contextlib.AbstractContextManager[Any]:
    """Engines go on sampling from the policy that the run started with."""
    sample = Run.sample

    def sample_from_the_start(
        self: Run[Any], at: Any, role: Role, policy: Policy, **others: Any
    ) -> Any:
        return sample(self, at, role, self.start, **others)

    return patch.object(Run, "sample", sample_from_the_start)


def other_temperature() -> contextlib.AbstractContextManager[Any]:
    """The trainer treats rollouts of temperature 1 as rollouts of temperature 1.5."""
    return patch.object(flows.run, "sampled_at", lambda rollouts: 1.5)


def hackable_judge() -> contextlib.AbstractContextManager[Any]:
    """The judge believes that a long answer says whatever it looks for."""
    show = scope_roles.show_answers_to_grader

    @functools.wraps(show)
    def show_what_long_answers_seem_to_say(*tables: Any, **settings: Any) -> Iterator[Row]:
        for row in show(*tables, **settings):
            if len(row["answer"].split()) > LONG:
                row["answer"] += f" {row['criterion'].partition(' ')[2]}"
            yield row

    return patch.object(scope_roles, "show_answers_to_grader", show_what_long_answers_seem_to_say)


def shrinking_pool() -> contextlib.AbstractContextManager[Any]:
    """From the second iteration on, the difficulty window is a tenth as wide."""
    keep = scope_steps.keep

    def strict_keep(step: Any, query: Any, **given: Any) -> Any:
        if "low" in given and (step.at.iteration or 0) > 1:
            given |= {"low": 0.48, "high": 0.51}
        return keep(step, query, **given)

    return patch.object(scope_steps, "keep", strict_keep)


def wrong_references() -> contextlib.AbstractContextManager[Any]:
    """The reference of every question whose answer is a whole number is one too large."""
    read_question = spice_readers.read_question

    def read_wrong(reply: str, task_type: str) -> Row:
        question = read_question(reply, task_type)
        if question["reference"].isdecimal():
            question["reference"] = str(int(question["reference"]) + 1)
        return question

    return patch.object(spice_readers, "read_question", read_wrong)


def contaminated() -> contextlib.AbstractContextManager[Any]:
    """The questions to train on and those to score on are the same file."""
    lines = [
        json.dumps({"question": task.question, "answer": task.answer})
        for task in held_out_tasks(seed=5, num_tasks=120)
        if not task.options
    ]
    CONTAMINATED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return contextlib.nullcontext()


LONG = 15  # words: three facts
CONTAMINATED = Path(tempfile.gettempdir()) / "sabotaged-held-out.jsonl"
TTRL: dict[str, Any] = {
    "iterations": 1,
    "steps": 2,
    "questions_per_step": 16,
    "group_size": 8,
    "num_engines": 1,
    "evaluation.num_tasks": 48,
}
SPICE_TWICE = SPICE | {"iterations": 2}
SCOPE_TWICE = SCOPE | {"iterations": 2, "pool.short_pool": "fewer_steps"}
RUNS = {
    "healthy": Sabotage(spice_iteration, "micro", SPICE, ()),
    "correlated judge": Sabotage(
        spice_iteration,
        "micro",
        SPICE | {"errors": {"shape": "mistake", "share": 1.0}},
        ("rewards_at_chance",),
    ),
    "stale policy": Sabotage(spice_iteration, "micro", SPICE, ("stale_policy",), stale_policy),
    "sampler off by temperature": Sabotage(
        spice_iteration, "micro", SPICE, ("sampler_and_trainer_disagree",), other_temperature
    ),
    "repeats": Sabotage(
        spice_iteration,
        "micro",
        # both corpora together have as many documents as a step
        SPICE | {"iterations": 2, "steps": 1, "corpus_documents": 6},
        ("tasks_repeat",),
    ),
    "wrong references": Sabotage(
        spice_iteration, "micro", SPICE, ("wrong_references",), wrong_references
    ),
    "contaminated held-out set": Sabotage(
        ttrl_iteration,
        "micro",
        TTRL | {"questions": str(CONTAMINATED), "evaluation.benchmarks": [str(CONTAMINATED)]},
        ("held_out_in_training",),
        contaminated,
    ),
    "length reward": Sabotage(
        spice_iteration,
        "micro",
        SPICE_TWICE | {"errors": {"shape": "length", "share": 1.0}, "update.learning_rate": 1e-3},
        ("length_is_rewarded", "rewards_at_chance"),
    ),
    "hackable judge": Sabotage(
        scope_iteration,
        "micro",
        SCOPE | DEAF,
        ("judge_errs_in_training", "rewards_leave_the_truth"),
        hackable_judge,
    ),
    "leaking gate": Sabotage(
        spice_iteration,
        "micro-hackable",
        SPICE | DEAF,
        ("wrong_references",),
    ),
    "gates switched off": Sabotage(
        scope_iteration,
        "micro",
        SCOPE | DEAF | {"judge.gates": [], "judge.rule_gates": []},
        ("wrong_references",),
    ),
    "shrinking pool": Sabotage(
        scope_iteration, "micro", SCOPE_TWICE | DEAF, ("pool_shrinks",), shrinking_pool
    ),
}


def play(name: str, sabotage: Sabotage, pool: MachinePool) -> Row:
    """Play one run, and return what was expected and what its findings say."""
    run = name.replace(" ", "-")
    started = time.monotonic()
    stopped = None
    with sabotage.spoil():
        request = Request(
            flow=sabotage.method.name,
            profile=sabotage.profile,
            run=run,
            overrides=sabotage.settings,
        )
        try:
            sabotage.method.run(request, pool=pool)
        except Alarm as alarm:
            stopped = str(alarm).splitlines()[0]
    spoken = list(spoken_rules(open_store(), run, sabotage.settings["iterations"]))
    return {
        "name": name,
        "flow": sabotage.method.name,
        "expected": sabotage.expected,
        "missed": sorted(set(sabotage.expected) - {row["rule"] for row in spoken}),
        "stopped": stopped,
        "findings": spoken,
        "seconds": round(time.monotonic() - started),
        "day": time.strftime("%Y-%m-%d"),
    }


def play_and_keep(runs: dict[str, Sabotage], file: Path) -> None:
    """Play the runs, and append a line of JSON for each to the file."""
    with contextlib.closing(MachinePool()) as pool:
        for name, sabotage in runs.items():
            row = play(name, sabotage, pool)
            print(json.dumps(row, indent=1), flush=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")


def chosen(runs: dict[str, Sabotage], parser: argparse.ArgumentParser) -> dict[str, Sabotage]:
    """The runs that the command line names, or all."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"runs to play, of {', '.join(runs)} (default: all)",
    )
    names = parser.parse_args().names
    if unknown := set(names) - set(runs):
        parser.error(f"there is no run {', '.join(sorted(unknown))}")
    return {name: runs[name] for name in names or runs}


def spoken_rules(store: Store, run: str, iterations: int) -> Iterator[Row]:
    """Each rule that speaks, with the first iteration after which it does, and its last words."""
    since: dict[str, int] = {}
    for iteration in range(1, iterations + 1):
        for finding in findings(store, run, iteration):
            since.setdefault(finding.rule, iteration)
    for finding in findings(store, run):
        yield {
            "rule": finding.rule,
            "severity": finding.severity,
            "after": since.get(finding.rule),
            "sentence": finding.sentence,
        }


if __name__ == "__main__":
    play_and_keep(chosen(RUNS, argparse.ArgumentParser(description=__doc__)), BENCH)
