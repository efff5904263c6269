"""The paper's ablations in miniature: runs over ledgers, and a table that says which of its claims showed.

`python -m flows.spice.claims` runs whatever is missing (runs go on where they stopped), in this process and without
Prefect's server, and writes `data/bench/spice-claims.md` and `.jsonl`. Every number is a query over the runs' tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from flows.spice.config import load_profile
from flows.workbench import PROJECT, STORE, Request, open_run
from warehouse.query import query

BENCH = PROJECT / "data" / "bench"
SPICE = "SPICE"
VARIANTS: dict[str, dict[str, Any]] = {
    SPICE: {},
    "Challenger fixed": {"challenger.fixed": True},
    "no document": {"challenger.grounded": False},
    "reward Absolute Zero": {"challenger.reward": "absolute_zero"},
    "reward threshold": {"challenger.reward": "threshold"},
    "reward R-Zero": {"challenger.reward": "r_zero"},
    "multiple choice only": {"challenger.formats": ["multiple_choice"]},
    "free form only": {"challenger.formats": ["free_form"]},
    "mathematics only": {"corpora": {"micro-mathematics": 1.0}},
    "general only": {"corpora": {"micro-general": 1.0}},
}
METRICS = {
    "held-out": ("micro", "score"),
    "Integer": ("micro", "score_Integer"),
    "Expression": ("micro", "score_Expression"),
    "String": ("micro", "score_String"),
    "multiple choice": ("micro", "score_multiple_choice"),
    "items asked": ("questions asked", "items"),
    "pass rate": ("questions asked", "pass_rate"),
    "true references": ("questions asked", "true_reference"),
}
SCORES = """
    select iteration, score from evaluations
    where run = $run and benchmark = $benchmark and metric = $metric order by iteration
"""


@dataclass(frozen=True)
class Claim:
    """`better` ends with a higher held-out score than `worse`, says the paper in its table or figure."""

    says: str
    better: str
    worse: str


CLAIMS = (
    Claim("training the Challenger helps (figure 4a)", SPICE, "Challenger fixed"),
    Claim("documents help (figure 4b)", SPICE, "no document"),
    Claim("variance beats Absolute Zero's reward (table 4)", SPICE, "reward Absolute Zero"),
    Claim("variance beats the threshold reward (table 4)", SPICE, "reward threshold"),
    Claim("variance beats R-Zero's reward (table 4)", SPICE, "reward R-Zero"),
    Claim("both formats beat multiple choice alone (table 3)", SPICE, "multiple choice only"),
    Claim("both formats beat free form alone (table 3)", SPICE, "free form only"),
    Claim("both corpora beat mathematics alone (table 2)", SPICE, "mathematics only"),
    Claim("both corpora beat general alone (table 2)", SPICE, "general only"),
)


def run_name(variant: str, seed: int) -> str:
    return f"spice-{variant.lower().replace(' ', '-')}-{seed}"


def play(variant: str, seed: int) -> None:
    """Make or finish one run."""
    from flows.spice.flow import self_play

    settings = {**VARIANTS[variant], "seed": seed, "num_engines": 1}  # seeds may run side by side
    if variant != SPICE:
        settings["probes.checkpoints"] = []
    asked = Request(flow="spice-iteration", profile="micro", run=run_name(variant, seed), overrides=settings)
    began = time.time()
    cfg = load_profile("micro", settings)
    with open_run(asked, cfg) as bench:
        self_play(cfg, bench)
    print(f"{asked.run}: {time.time() - began:.0f} s", flush=True)


def series(variant: str, seed: int, metric: str) -> list[float]:
    benchmark, name = METRICS[metric]
    asked = {"run": run_name(variant, seed), "benchmark": benchmark, "metric": name}
    return [row["score"] for row in query(STORE, SCORES, asked)]


def probe(seed: int, benchmark: str) -> list[float]:
    asked = {"run": run_name(SPICE, seed), "benchmark": benchmark, "metric": "score"}
    return [row["score"] for row in query(STORE, SCORES, asked)]


def summary(values: Sequence[float]) -> str:
    error = f" ± {stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{error}"


def rows(variants: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row a variant: every metric at the end of its runs, mean and standard error over seeds; the gain as well."""
    found = []
    for variant in variants:
        runs = [series(variant, seed, "held-out") for seed in seeds]
        row = {
            "variant": variant,
            "before": summary([s[0] for s in runs]),
            "gain": summary([s[-1] - s[0] for s in runs]),
        }
        for metric in METRICS:
            last = [s[-1] for seed in seeds if (s := series(variant, seed, metric))]
            row[metric] = summary(last) if last else "–"
        found.append(row)
    return found


def verdicts(variants: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Whether each claim shows: the difference of final held-out scores, seed by seed."""
    found = []
    for claim in CLAIMS:
        if {claim.better, claim.worse} <= set(variants):
            pairs = [(series(claim.better, s, "held-out")[-1], series(claim.worse, s, "held-out")[-1]) for s in seeds]
            differences = [better - worse for better, worse in pairs]
            showed = "yes" if min(differences) > 0 else "no"
            found.append({"claim": claim.says, "difference": summary(differences), "in every seed": showed})
    for benchmark, sign in (("fixed Reasoner", -1), ("fixed Challenger", 1)):
        if moved := [p[-1] - p[0] for seed in seeds if (p := probe(seed, benchmark))]:
            says = f"pass rate against the {benchmark} {'rises' if sign > 0 else 'falls'} (figure 3)"
            showed = "yes" if min(sign * m for m in moved) > 0 else "no"
            found.append({"claim": says, "difference": summary(moved), "in every seed": showed})
    return found


def as_table(found: list[dict[str, Any]]) -> str:
    lines = [list(found[0]), ["---"] * len(found[0]), *(row.values() for row in found)]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    for seed in args.seeds:
        for variant in args.variants:
            play(variant, seed)
    found, judged = rows(args.variants, args.seeds), verdicts(args.variants, args.seeds)
    BENCH.mkdir(parents=True, exist_ok=True)
    text = as_table(found) + ("\n" + as_table(judged) if judged else "")
    (BENCH / "spice-claims.md").write_text(text)
    (BENCH / "spice-claims.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*found, *judged]))
    print(text)


if __name__ == "__main__":
    main()
