"""The paper's claims in miniature: runs of the micro-world, three seeds each, and a table that says what was
reproduced.

`python -m flows.scope.claims` runs whatever is missing (runs go on where they stopped), in this process and without
Prefect's server, and writes `data/bench/claims.md` and `claims.jsonl`. Every number is a query over the runs' tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from flows.scope.config import load_profile
from flows.scope.monitor import JudgeAlarm
from flows.workbench import PROJECT, STORE, Request, open_run
from warehouse.query import query

BENCH = PROJECT / "data" / "bench"
SEEDS = (0, 1, 2)

VARIANTS: dict[str, dict[str, Any]] = {
    "co-evolving": {},
    "frozen Challenger": {"challenger.frozen_after": 0},
    "no quality gates": {"judge.quality_gates": False},
    "no length penalty": {"solver.reward.length_penalty": False},
    "hackable judge": {"models.grader": "data/micro/base"},
}

HELD_OUT = """
    select iteration, score from evaluations
    where run = $run and benchmark = 'micro' and metric = 'score' order by iteration
"""
POOL = """
    select
        iteration,
        avg(mean_score) as mean_score,
        avg((mean_score between 0.2 and 0.8)::int) as surviving
    from selections where run = $run group by iteration order by iteration
"""
GENERIC = """
    select iteration, avg((text like '%about towns like %' or text like '%about places near %')::int) as generic
    from tasks where run = $run and phase = 'pool' and text is not null
    group by iteration order by iteration
"""
LENGTH = """
    select iteration, score from evaluations
    where run = $run and benchmark = 'micro' and metric = 'answer_tokens' order by iteration
"""


@dataclass(frozen=True)
class Claim:
    """What the paper says, the number that shows it, one value a seed, and when it counts as reproduced."""

    says: str
    number: str
    value: Callable[[int], float]
    holds: Callable[[float], bool]


def run_name(variant: str, seed: int) -> str:
    return f"claim-{variant.lower().replace(' ', '-')}-{seed}"


def play(variant: str, seed: int) -> None:
    """Make or finish one run. An alarm of the judge monitor is a result, not a failure."""
    from flows.scope.flow import self_play

    settings = {**VARIANTS[variant], "seed": seed, "num_engines": 1}  # seeds may run side by side
    asked = Request(flow="scope-iteration", profile="micro", run=run_name(variant, seed), overrides=settings)
    cfg = load_profile("micro", settings)
    began = time.time()
    try:
        with open_run(asked, cfg) as bench:
            self_play(cfg, bench)
    except JudgeAlarm as alarm:
        print(f"{run_name(variant, seed)}: stopped by the judge monitor: {alarm}", flush=True)
    print(f"{run_name(variant, seed)}: {time.time() - began:.0f} s", flush=True)


def series(sql: str, variant: str, seed: int, column: str) -> list[float]:
    return [row[column] for row in query(STORE, sql, {"run": run_name(variant, seed)})]


def gain(variant: str, seed: int) -> float:
    scores = series(HELD_OUT, variant, seed, "score")
    return scores[-1] - scores[0]


def late_gain(variant: str, seed: int) -> float:
    scores = series(HELD_OUT, variant, seed, "score")
    return scores[-1] - scores[1]


def survivors(seed: int) -> float:
    shares = series(POOL, "frozen Challenger", seed, "surviving")
    return shares[-1] / shares[0] if shares[0] else math.nan


def generic_ratio(seed: int) -> float:
    ungated = series(GENERIC, "no quality gates", seed, "generic")[-1]
    gated = series(GENERIC, "co-evolving", seed, "generic")[-1]
    return ungated / gated if gated else math.inf


def extra_tokens(seed: int) -> float:
    return series(LENGTH, "no length penalty", seed, "score")[-1] - series(LENGTH, "co-evolving", seed, "score")[-1]


def alarm_before_fall(seed: int) -> float:
    """1 when the monitor stopped the run and no held-out score before that fell below the one before it."""
    scores = series(HELD_OUT, "hackable judge", seed, "score")
    finished = len(scores) == load_profile("micro").iterations + 1
    fell = any(after < before for before, after in pairwise(scores))
    return float(not finished and not fell)


CLAIMS = (
    Claim(
        "self-play raises the held-out score",
        "gain over iteration 0",
        lambda s: gain("co-evolving", s),
        lambda v: v >= 0.10,
    ),
    Claim(
        "a frozen Challenger's tasks drift easy",
        "mean score of candidates, last iteration minus first",
        lambda s: (
            series(POOL, "frozen Challenger", s, "mean_score")[-1]
            - series(POOL, "frozen Challenger", s, "mean_score")[0]
        ),
        lambda v: v > 0,
    ),
    Claim(
        "and fewer of them survive the window",
        "share surviving, last over first iteration",
        survivors,
        lambda v: v < 0.6,
    ),
    Claim(
        "and the held-out score stalls",
        "gain after iteration 1, co-evolving minus frozen",
        lambda s: late_gain("co-evolving", s) - late_gain("frozen Challenger", s),
        lambda v: v > 0,
    ),
    Claim(
        "without quality gates tasks turn generic", "generic share, ungated over gated", generic_ratio, lambda v: v >= 3
    ),
    Claim("without the length penalty answers grow", "tokens, without minus with", extra_tokens, lambda v: v >= 6),
    Claim(
        "a hackable judge is caught in time",
        "alarm before the held-out score falls",
        alarm_before_fall,
        lambda v: v == 1,
    ),
)


def judge_claims(seeds: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for claim in CLAIMS:
        values = [claim.value(seed) for seed in seeds]
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        rows.append(
            {
                "claim": claim.says,
                "number": claim.number,
                "mean": round(fmean(values), 3),
                "standard_error": None if error is None else round(error, 3),
                "by_seed": [round(v, 3) for v in values],
                "reproduced": all(map(claim.holds, values)),
            }
        )
    return rows


def write(rows: list[dict[str, Any]], folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["| claim | number | mean ± s.e. | by seed | reproduced in every seed |", "|---|---|---|---|---|"]
    for row in rows:
        error = "" if row["standard_error"] is None else f" ± {row['standard_error']}"
        by_seed = ", ".join(map(str, row["by_seed"]))
        verdict = "yes" if row["reproduced"] else "**no**"
        lines.append(f"| {row['claim']} | {row['number']} | {row['mean']}{error} | {by_seed} | {verdict} |")
    text = "\n".join(lines) + "\n"
    (folder / "claims.md").write_text(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    seeds = parser.parse_args().seeds
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    for seed in seeds:
        for variant in VARIANTS:
            play(variant, seed)
    print(write(judge_claims(seeds), BENCH))


if __name__ == "__main__":
    main()
