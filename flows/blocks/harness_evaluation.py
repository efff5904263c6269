"""Evaluation of a policy on a benchmark by lm-evaluation-harness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flows.benchmarks import Benchmark, Protocol
from flows.run import Run
from tasks.benchmarks.harness import ask_harness, harness_items, harness_scores
from tasks.benchmarks.item_scores import measure_items
from tasks.evaluate import evaluate as store_metrics
from tasks.models.engine import Policy
from warehouse.store import Place, Table

HARNESS = "0.4.13"  # the version of lm-eval in requirements/harness.txt


@dataclass(frozen=True)
class HarnessEvaluation:
    """A benchmark that lm-evaluation-harness runs and scores; its log of every sample is stored in
    the same tables."""

    run: Run[Any]
    benchmark: Benchmark
    protocol: Protocol
    label: str

    @property
    def differs(self) -> list[str]:
        """How this evaluation differs from the paper's."""
        cfg = self.run.cfg.evaluation
        reasons = list(self.protocol.differs)
        if cfg.items is not None:
            reasons.append(f"at most {self.benchmark.num_asked(cfg.items)} items")
        if cfg.harness.asking:
            reasons.append(f"asked with {' '.join(cfg.harness.asking)}")
        return reasons

    def evaluate(self, iteration: Place, policy: Policy) -> Table:
        """Let the harness evaluate a policy, and store its samples as answers, scores and metrics.

        Engines on GPUs release their memory first. The tables are in the phase `evaluation` of
        `iteration`. Returns the scores, one row per sample.
        """
        cfg = self.run.cfg.evaluation
        place = iteration.phase("evaluation")
        task = self.benchmark.harness
        assert task is not None
        self.run.machines.release_engines()
        harness = cfg.harness.on(self.run.cfg.engine)
        answers = ask_harness(
            place,
            policy=policy,
            task=task,
            limit=cfg.items and self.benchmark.limit_of_part(cfg.items),
            arguments=harness.arguments,
            harness=harness,
            version=HARNESS,
            label=self.label,
        )
        protocol = {
            "revision": f"lm-eval {HARNESS}, {task}",
            "items": cfg.items and self.benchmark.num_asked(cfg.items),
            "backend": harness.backend,
        }
        if harness.asking:
            protocol["arguments"] = harness.asking
        items = harness_items(place, answers, label=self.label)
        scores = harness_scores(
            place, answers, metric=self.protocol.metric, protocol=protocol, label=self.label
        )
        store_metrics(
            place,
            measure_items,
            policy=policy.id,
            benchmark=self.label,
            protocol=protocol,
            items=items,
            scores=scores,
            label=self.label,
        )
        return scores
