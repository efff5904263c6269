"""Compare a policy, on the user's own questions, with its base model at its best prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from flows.app.command.candidates import Candidate, own_run
from flows.app.command.tables import print_table
from flows.benchmarks import RESPONSE_TOKENS
from flows.blocks.evaluation import BenchmarkEvaluation
from flows.run import Run
from flows.runtime.store_root import store_root
from tasks.benchmarks.item_scores import compare
from tasks.models.engine import Policy
from warehouse.query import query
from warehouse.store import Place, Table

FEW_SHOT = ("lines-2-shot", "lines-5-shot")  # worked examples, in a form that base models continue
BEFORE = 0  # the iteration at which the base model is scored
METRICS = """
    select metric, score, standard_error from evaluations
    where run = $run and iteration = $iteration and benchmark = $benchmark
"""
DIFFERENCES = """
    select metric, n, round(base_score, 3) as baseline, round(score, 3) as score,
        round(difference, 3) as difference, round(low, 3) as low, round(high, 3) as high
    from comparisons
    where run = $run and iteration = $iteration and benchmark = $benchmark and base = $base
"""


@dataclass(frozen=True)
class PolicyScores:
    """A policy on the questions: how it was asked, and the score of every answer."""

    policy: Policy
    prompts: str
    evaluation: BenchmarkEvaluation
    at: Place
    scores: Table

    @property
    def place(self) -> dict[str, Any]:
        """Where the measurements are stored, as parameters of a query."""
        return {
            "run": self.at.at.run,
            "iteration": self.at.at.iteration,
            "benchmark": self.evaluation.label,
        }

    @property
    def metrics(self) -> dict[str, str]:
        """Mean and standard error of each metric."""
        rows = query(store_root(), METRICS, self.place)
        return {row["metric"]: _with_error(row["score"], row["standard_error"]) for row in rows}

    @property
    def num_scored(self) -> int:
        """How many answers have a score."""
        return sum(row["unscored"] is None for row in self.scores.rows())

    @property
    def mean(self) -> float:
        """The mean of the benchmark's main score."""
        values = [row["scores"]["score"] for row in self.scores.rows() if row["unscored"] is None]
        return sum(values) / max(1, len(values))


def evaluate_on_own(
    run: Run[Any],
    file: str,
    candidate: Candidate,
    index: Table | None,
    label: str,
    prompts: str | None,
) -> None:
    """Evaluate a candidate on a file of questions; print its scores next to those of its base.

    The base model is asked with the candidate's prompts and with worked examples. The candidate is
    compared, item by item, with the best of these. `prompts`: the set of prompts; by default
    `lines` if the model is trained without its chat template, else the benchmark prompts of the
    configuration.
    """
    own_prompts = prompts or _prompts_of(run.cfg)
    policy = candidate.policy(run)
    base = run.model("base")
    at_base = run.place.store.run(own_run(base.weights)).iteration(BEFORE)
    answered = []
    if policy != base:
        at = run.place.iteration(candidate.iteration)
        answered.append(_ask(run, file, own_prompts, index, label, policy, at))
    baselines = [_ask(run, file, own_prompts, index, label, base, at_base)]
    # there are no worked examples of multiple choice
    is_choice = bool(baselines[0].evaluation.columns.options)
    for few_shot in () if is_choice else FEW_SHOT:
        if few_shot != own_prompts:
            few_shot_label = f"{label}-{few_shot}"
            baselines.append(_ask(run, file, few_shot, index, few_shot_label, base, at_base))
    print_table(_table_of([*answered, *baselines]), f"answers to {file}")
    for each in (*answered, *baselines):
        if not each.num_scored:
            click.echo(
                f"no answer of {each.policy.id} to the prompts {each.prompts} could be scored: the"
                " engine's context may be too short for them: raise it, as in --set"
                " engine.max_model_len=1024"
            )
    best = max(baselines, key=lambda each: each.mean)
    for each in answered:
        _print_differences(each, best)


def _table_of(all_answered: Sequence[PolicyScores]) -> list[dict[str, Any]]:
    """One row per policy and set of prompts; missing metrics are empty."""
    metrics = [each.metrics for each in all_answered]
    names = list(dict.fromkeys(name for each in metrics for name in each))
    return [
        {
            "model": each.policy.id,
            "prompts": each.prompts,
            "n": each.evaluation.items.num_rows,
            **{name: of_one.get(name, "") for name in names},
        }
        for each, of_one in zip(all_answered, metrics, strict=True)
    ]


def _ask(
    run: Run[Any],
    file: str,
    prompts: str,
    index: Table | None,
    label: str,
    policy: Policy,
    at: Place,
) -> PolicyScores:
    """A policy's scored answers to a set of prompts."""
    cfg = run.cfg
    settings = cfg.evaluation.model_copy(
        update={"prompts": prompts, "response_tokens": _response_tokens(cfg)}
    )
    changes: dict[str, Any] = {"evaluation": settings}
    if prompts.startswith("lines") and hasattr(cfg, "dialogues"):
        # the model continues a `lines` prompt rather than answering it in a chat
        changes["dialogues"] = cfg.dialogues.model_copy(update={"chat_template": "none"})
    asking = replace(run, cfg=cfg.model_copy(update=changes))
    evaluation = BenchmarkEvaluation.open(asking, file, index, label=label)
    return PolicyScores(policy, prompts, evaluation, at, evaluation.evaluate(at, policy))


def _prompts_of(cfg: Any) -> str:
    """The benchmark prompts most similar to those that the model is trained with."""
    dialogues = getattr(cfg, "dialogues", None)
    if getattr(dialogues, "chat_template", "model") == "none":
        return "lines"
    return cfg.evaluation.prompts


def _response_tokens(cfg: Any) -> int | None:
    """Maximum tokens of an answer: by default no more than in training, which leaves room in the
    context for the text."""
    if cfg.evaluation.response_tokens is not None or not hasattr(cfg, "dialogues"):
        return cfg.evaluation.response_tokens
    return min(RESPONSE_TOKENS, cfg.dialogues.response_tokens)


def _with_error(score: float, standard_error: float | None) -> str:
    if standard_error is None:
        return f"{score:.3f}"
    return f"{score:.3f} ± {standard_error:.3f}"


def _print_differences(ours: PolicyScores, best: PolicyScores) -> None:
    base = f"{best.policy.id}, {best.prompts}"
    compare(
        ours.at.phase("evaluation"),
        ours.scores,
        best.scores,
        policy=ours.policy.id,
        base=base,
        benchmark=ours.evaluation.label,
        besides=("prompt", "sampling", "prompt_tokens"),
        label=ours.evaluation.label,
    )
    rows = query(store_root(), DIFFERENCES, {**ours.place, "base": base})
    print_table(rows, f"minus {base}, with 95% intervals, item by item")
