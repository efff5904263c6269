"""SPELL's ablations in miniature: runs of the micro-world and a table of what each leaves of the gain.

`python -m flows.spell.claims` runs whatever is missing (runs go on where they stopped), in this process and without
Prefect's server, and writes `data/bench/spell_ablations.md` and `.jsonl`. Every number is a query over the tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from flows.spell.config import load_profile
from flows.workbench import PROJECT, STORE, Request, open_run
from warehouse.query import query

BENCH = PROJECT / "data" / "bench"
SEEDS = (0, 1, 2)
PAPER = {  # table 2: change of the average score against the whole method, points of 100
    "whole": 0.0,
    "no format penalty": -1.1,
    "no grounding filter": -1.0,
    "questioner not updated": -4.6,
    "no history memory": -2.9,
    "no verifier": -3.2,
    "verifier not updated": -0.4,
    "no majority vote": -0.6,
    "no consistency": -1.5,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no format penalty": {"questioner.format_penalty": False},
    "no grounding filter": {"questioner.grounding_filter": False},
    "questioner not updated": {"questioner.trained": False},
    "no history memory": {"questioner.memory_pairs": 0},
    "no verifier": {"verifier.enabled": False},
    "verifier not updated": {"verifier.trained": False},
    "no majority vote": {"verifier.majority_vote": False},
    "no consistency": {"verifier.consistency": False},
}
SCORES = """
    select iteration, score, standard_error from evaluations
    where run = $run and benchmark = 'micro' and metric = 'score' order by iteration
"""
QUESTIONS = """
    select
        avg((reason is distinct from null and reason like 'malformed%')::int) as malformed,
        avg(mean_score) as mean_score
    from selections where run = $run and iteration = (select max(iteration) from selections where run = $run)
"""


def run_name(variant: str, seed: int) -> str:
    return f"spell-{variant.replace(' ', '-')}-{seed}"


def play(variant: str, seed: int) -> None:
    """Make or finish one run."""
    from flows.spell.flow import self_play

    settings = {**VARIANTS[variant], "seed": seed, "num_engines": 1}  # seeds may run side by side
    asked = Request(flow="spell-iteration", profile="micro", run=run_name(variant, seed), overrides=settings)
    cfg = load_profile("micro", settings)
    began = time.time()
    with open_run(asked, cfg) as bench:
        self_play(cfg, bench)
    print(f"{run_name(variant, seed)}: {time.time() - began:.0f} s", flush=True)


def measure(variant: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Scores before and after, the gain and its standard error over seeds, what the last questions were like."""
    scores = [[row["score"] for row in query(STORE, SCORES, {"run": run_name(variant, s)})] for s in seeds]
    last = [query(STORE, QUESTIONS, {"run": run_name(variant, s)})[0] for s in seeds]
    gains = [found[-1] - found[0] for found in scores]
    return {
        "variant": variant,
        "before": round(fmean(found[0] for found in scores), 3),
        "after": round(fmean(found[-1] for found in scores), 3),
        "gain": round(fmean(gains), 3),
        "standard_error": round(stdev(gains) / math.sqrt(len(gains)), 3) if len(gains) > 1 else None,
        "by_seed": [round(gain, 3) for gain in gains],
        "malformed_questions": round(fmean(row["malformed"] for row in last), 3),
        "mean_score_of_questions": round(fmean(row["mean_score"] or 0.0 for row in last), 3),
    }


def write(rows: list[dict[str, Any]], folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spell_ablations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = next(row["gain"] for row in rows if row["variant"] == "whole")
    lines = [
        "| variant | held-out before, after | gain ± s.e. | against the whole method | paper, points of 100 |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.3f}"
        lines.append(
            f"| {row['variant']} | {row['before']:.3f}, {row['after']:.3f} | {row['gain']:+.3f}{error} "
            f"| {row['gain'] - whole:+.3f} | {PAPER[row['variant']]:+.1f} |"
        )
    text = "\n".join(lines) + "\n"
    (folder / "spell_ablations.md").write_text(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    for seed in args.seeds:
        for variant in args.variants:
            play(variant, seed)
    print(write([measure(variant, args.seeds) for variant in args.variants], BENCH))


if __name__ == "__main__":
    main()
