"""What `selfplay evaluate` evaluates: a run's policy, a model, or an adapter."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flows.app.command.parameters import find_flow, find_method, method_of
from flows.app.command.tables import print_table
from flows.benchmarks.averages import averages_of
from flows.blocks.evaluation import (
    BenchmarkEvaluation,
    HarnessEvaluation,
    average_scores,
    compare_with_base,
)
from flows.run import Run
from flows.runtime.machines import open_model
from flows.runtime.record import CONFIG, last_request
from flows.runtime.start import open_adapter
from flows.runtime.store_root import store_root
from flows.settings import profile as profiles
from tasks.models.engine import Policy
from warehouse.address import RUN_NAME, no_run
from warehouse.query import query
from warehouse.schemas import Evaluation
from warehouse.store import Store
from warehouse.table import check_iteration

CONTEXT = 4096  # tokens of context for a model without a profile
MOST_LETTERS = 40  # maximum length of a model's name in a run's name
SCORES = """
    select metric, n, round(score, 4) as score, round(standard_error, 4) as standard_error
    from evaluations where run = $run and iteration = $iteration and benchmark = $benchmark
"""
DIFFERENCES = """
    select metric, n, num_left_out, round(base_score, 4) as base, round(score, 4) as score,
        round(difference, 4) as difference, round(low, 4) as low, round(high, 4) as high
    from comparisons
    where run = $run and iteration = $iteration and benchmark = $benchmark and base = $base
"""


@dataclass(frozen=True)
class Candidate:
    """A policy to evaluate, its settings, and the run that holds its tables.

    The tables of a model or an adapter are in the run named by `own_run`.
    """

    cfg: profiles.MethodSettings
    run: str
    iteration: int
    adapter: Path | None = None
    is_run: bool = False

    def policy(self, run: Run[Any]) -> Policy:
        """The run's evaluated player after the iteration, the adapter on its base, or the base.

        Raises ValueError if the iteration or the adapter does not exist.
        """
        if self.is_run:
            return run.player_after(self.cfg.examined, self.iteration).policy
        if self.adapter:
            return open_adapter(self.adapter, run.model("base"))
        return run.model("base")


def evaluate_on(
    evaluation: BenchmarkEvaluation | HarnessEvaluation, candidate: Candidate, against: str | None
) -> None:
    """Evaluate a candidate on one benchmark and print its scores.

    With `against`, also print the differences from that policy.

    Raises ValueError if the two policies are the same.
    """
    run = evaluation.run
    policy = candidate.policy(run)
    at = run.place.iteration(candidate.iteration)
    place = {"run": candidate.run, "iteration": candidate.iteration, "benchmark": evaluation.label}
    scores = evaluation.evaluate(at, policy)
    print_table(query(store_root(), SCORES, place), f"{policy.id} on {evaluation.label}")
    print_published(evaluation.protocol.published, evaluation.label, evaluation.differs)
    if against is None:
        return
    if against == "start":
        base = run.start
        at_base = run.place.iteration(0)
    elif against == "base":
        base = run.model("base")
        at_base = run.place.iteration(0)
        if base != run.start:  # iteration 0 holds the answers of the policy that the run began with
            at_base = run.place.store.run(own_run(base.weights)).iteration(0)
    else:
        base = open_model(against)
        at_base = run.place.store.run(own_run(against)).iteration(0)
    if base == policy:
        raise ValueError(f"{policy.id} is its own base: name another model by --against MODEL")
    compare_with_base(evaluation, at, scores, policy, evaluation.evaluate(at_base, base), base)
    rows = query(store_root(), DIFFERENCES, {**place, "base": base.id})
    print_table(rows, f"minus {base.id}, with 95% intervals, item by item")


def print_published(published: dict[str, float], name: str, differs: list[str]) -> None:
    """Print a paper's scores and, if they are not comparable with the measurements here, why."""
    if not published:
        return
    title = f"published for {name}"
    if differs:
        title += f"; not comparable: {'; '.join(differs)}"
    print_table([{"model": model, "score": score} for model, score in published.items()], title)


def print_averages(
    evaluations: Sequence[BenchmarkEvaluation | HarnessEvaluation],
    candidate: Candidate,
    suffix: str = "",
) -> None:
    """Average the scores of several benchmarks as the paper does, and print the averages next to
    the published ones."""
    run = evaluations[0].run
    at = run.place.iteration(candidate.iteration)
    policy = candidate.policy(run)
    averages = average_scores(at, evaluations, policy, suffix)
    if averages is None:
        return
    rows = list(averages.rows(Evaluation))
    print_table(
        [
            {
                "average": row["metric"],
                "benchmarks": row["n"],
                "score": round(row["score"] or 0.0, 4),
                "standard_error": row["standard_error"] and round(row["standard_error"], 4),
            }
            for row in rows
        ],
        f"averages of {policy.id}",
    )
    evaluated = {evaluation.benchmark.name: evaluation for evaluation in evaluations}
    for name, entry in averages_of(run.cfg.evaluation.paper or run.method).items():
        if any(row["metric"] == name for row in rows):
            members = dict.fromkeys(member.partition("/")[0] for member in entry.of)
            differs = [
                f"{member}: {reason}"
                for member in members
                if member in evaluated
                for reason in evaluated[member].differs
            ]
            print_published(entry.published, name, differs)


def find_candidate(
    store: Store, target: str, iteration: int | None, profile: str | None, settings: dict[str, Any]
) -> Candidate:
    """The candidate that `target` names: a run, else an adapter or a model.

    Raises ValueError if there is none, for an iteration that the run does not have, for a run that
    trains no model, and for an adapter whose configuration lacks its base or its rank.
    """
    if is_run(store, target):
        request = last_request(store, target)
        config = method_of(request).config
        if not issubclass(config, profiles.MethodSettings):
            raise ValueError(
                f"the run {target} trains no model, so it has no policy: name another run"
            )
        cfg = profiles.load(config, request.profile, {**request.settings, **settings})
        if iteration is None:
            iteration = last_iteration(store, target, cfg.examined)
        else:
            check_iteration(target, store.tables(target), iteration)
        return Candidate(cfg, target, iteration, is_run=True)
    if iteration is not None:
        raise no_run(target)
    if "/" not in target and not Path(target).exists():
        raise ValueError(
            f"there is no run and no folder of a model {target!r}; `selfplay status` lists the runs"
        )
    adapter = None
    base = target
    engine = {}
    adapter_config = Path(target) / "adapter_config.json"
    if adapter_config.is_file():
        adapter = Path(target)
        base, engine["max_lora_rank"] = _base_and_rank(adapter_config)
    engine["max_model_len"] = _context(base)
    if profile is None:
        values = {"models": {"base": base}, "engine": engine, "evaluation": {"items": None}}
        cfg = profiles.resolve(profiles.MethodSettings, values, settings, target)
    else:
        flow, _, name = profile.rpartition("/")
        config = cast(type[profiles.MethodSettings], find_method(find_flow(flow)).config)
        cfg = profiles.load(config, name, {"models.base": base, "engine.model": base, **settings})
    return Candidate(cfg, own_run(target), 1 if adapter else 0, adapter)


def _context(model: str) -> int:
    """The context, in tokens, of an engine for a model without a profile: `CONTEXT`, or fewer if a
    model in a local folder has fewer positions."""
    file = Path(model) / "config.json"
    if not file.is_file():
        return CONTEXT
    config = json.loads(file.read_text(encoding="utf-8"))
    return min(CONTEXT, config.get("max_position_embeddings", CONTEXT))


def _base_and_rank(adapter_config: Path) -> tuple[str, int]:
    """The base model of an adapter, and its rank. Raises ValueError if the file lacks one."""
    lora = json.loads(adapter_config.read_text(encoding="utf-8"))
    absent = [key for key in ("base_model_name_or_path", "r") if lora.get(key) is None]
    if absent:
        raise ValueError(
            f"{adapter_config} has no {' and no '.join(absent)}: add it; the base is a model's"
            " folder or hub name, and r is the adapter's rank"
        )
    return lora["base_model_name_or_path"], lora["r"]


def is_run(store: Store, target: str) -> bool:
    """Whether `target` names a run with a configuration, rather than a model or an adapter."""
    return bool(RUN_NAME.fullmatch(target) and store.kept(target, CONFIG))


def own_run(target: str) -> str:
    """The run that holds the evaluations of a model or an adapter; its name contains that of the
    model and a hash of its folder or hub name.

    >>> own_run("Qwen/Qwen3-8B"), own_run("lab/Qwen3-8B")
    ('evaluate-Qwen3-8B-a82fd5', 'evaluate-Qwen3-8B-a026b4')
    """
    path = Path(target)
    whole = str(path.resolve()) if path.exists() else target
    number = hashlib.sha256(whole.encode()).hexdigest()[:6]
    name = re.sub(r"[^\w.+=@-]+", "-", path.name, flags=re.ASCII)[:MOST_LETTERS]
    return f"evaluate-{name.strip('-') or 'model'}-{number}"


def last_iteration(store: Store, run: str, player: str) -> int:
    """The last iteration that updated a player; 0 for none.

    Raises ValueError if the run's method names its players differently and does not say which one
    to evaluate.
    """
    last: dict[str, int] = {}
    for table in store.updates(run):
        role = table.rows()[-1]["role"]
        last[role] = max(last.get(role, 0), table.at.iteration or 0)
    if last and player not in last and player == profiles.MethodSettings.examined:
        raise ValueError(
            f"run {run!r} trains {', '.join(sorted(last))} and no {player!r}: name the one to"
            ' evaluate in the method\'s Config, as in `examined: ClassVar = "solver"`'
        )
    return last.get(player, 0)
