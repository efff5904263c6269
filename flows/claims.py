"""Papers' claims in the micro-worlds: `python -m flows.claims [STUDY...]` plays methods, their ablations and the
baselines, several seeds each, and says which claims hold (`flows.study`). A claim holds if it holds for every seed.

It plays whatever is missing (runs resume where they stopped), in this process and without Prefect's server. After each
variant it writes `data/bench/STUDY-claims.md` and `.jsonl` and a page with figures: a row has all seeds, or is missing.
Thresholds of claims are written down in the store before anything is played; the tables say of which this is so.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence

from flows.command.launch import find_method
from flows.request import Request
from flows.service.site import SOURCE, open_store
from flows.study import STUDIES, Claim, Seed, Study
from tasks.monitor import Alarm
from tasks.reports.runs import mean_and_error, report_runs
from warehouse.draft import write_json
from warehouse.schemas import Row

BENCH = SOURCE / "data" / "bench"


def prepare(study: Study) -> None:
    """Prepare the corpus that its runs learn from."""
    if study.corpus:
        method = find_method("prepare-corpus")
        method.run(Request(flow=method.name, profile=study.corpus, run=study.corpus))


def play(study: Study, variant: str, seed: int) -> None:
    """Play one run, or resume it."""
    method = find_method(f"{study.method}-iteration")
    settings = {
        **study.variants[variant],
        "seed": study.seed_of(variant, seed),
        "num_engines": 1,
    }  # seeds may run side by side
    name, began = study.run_name(variant, seed), time.monotonic()
    try:
        method.run(Request(flow=method.name, profile=study.profile_of(variant), run=name, overrides=settings))
    except Alarm as stop:  # an alarm is a result, too
        print(f"{name}: stopped: {stop}", flush=True)
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def write_down(study: Study) -> dict[str, Row]:
    """The threshold of each claim when first seen here, with the time; adds new claims to the store."""
    path, now = open_store().root / "claims" / f"{study.name}.json", time.time()
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    new = {claim.says: {"threshold": claim.threshold, "at": now} for claim in study.claims}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, new | known)
    return new | known


def set_before(claim: Claim, written: Row, study: Study, seeds: Sequence[Seed]) -> bool:
    """Whether a claim's threshold was written down before any of its runs began, and is the same now."""
    names = {study.run_name(variant, seed.number) for variant in claim.runs.values() for seed in seeds}
    began = [t.recipe["started_at"] for name in names for t in open_store().tables(name)]
    return written["threshold"] == claim.threshold and written["at"] <= min(began, default=written["at"])


def describe_variants(study: Study, variants: Sequence[str], seeds: Sequence[Seed]) -> list[Row]:
    """One row per variant: the held-out score before, its gain, and every metric at the end of its runs."""
    found = []
    for variant in variants:
        scores = [seed.series(variant) for seed in seeds]
        gains = [seed.gain(variant) for seed in seeds]
        row = {"variant": variant, "before": summary([s[0] for s in scores]), "gain": summary(gains)}
        for column, (benchmark, metric) in study.metrics.items():
            ends = [series[-1] for seed in seeds if (series := seed.series(variant, metric, benchmark))]
            row[column] = summary(ends) if ends else "–"
        found.append(row)
    return found


def judge_claims(study: Study, variants: Sequence[str], seeds: Sequence[Seed]) -> list[Row]:
    """One row per claim whose variants were all played."""
    found, written = [], write_down(study)
    for claim in study.claims:
        if set(claim.runs.values()) <= set(variants):
            values = [seed.value(claim) for seed in seeds]
            found.append(
                {
                    "claim": claim.says,
                    "number": claim.number,
                    "threshold": claim.threshold,
                    "set before": "yes" if set_before(claim, written[claim.says], study, seeds) else "no",
                    "mean ± s.e.": summary(values),
                    "by seed": ", ".join(f"{value:.3f}" for value in values),
                    "shows in every seed": "yes" if all(map(claim.holds, values)) else "no",
                }
            )
    return found


def summary(values: Sequence[float]) -> str:
    """Mean and standard error over seeds.

    >>> summary([0.25, 0.75]), summary([0.5])
    ('0.500 ± 0.250', '0.500')
    """
    mean, error = mean_and_error(values)
    return f"{mean:.3f} ± {error:.3f}" if len(values) > 1 else f"{mean:.3f}"


def as_markdown(rows: list[Row]) -> str:
    """
    >>> print(as_markdown([{"claim": "it learns", "shows": "yes"}]), end="")
    | claim | shows |
    | --- | --- |
    | it learns | yes |
    """
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def report(study: Study, variants: Sequence[str], seeds: Sequence[Seed]) -> str:
    """Write the tables and the page; returns the tables."""
    described, judged = describe_variants(study, variants, seeds), judge_claims(study, variants, seeds)
    tables = {"Claims": judged, "Variants, at the end of their runs": described}
    text = "\n".join(as_markdown(rows) for rows in tables.values() if rows)
    BENCH.mkdir(parents=True, exist_ok=True)
    (BENCH / f"{study.name}-claims.md").write_text(text, encoding="utf-8")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in [*judged, *described]]
    (BENCH / f"{study.name}-claims.jsonl").write_text("".join(lines), encoding="utf-8")
    groups = {variant: [study.run_name(variant, seed.number) for seed in seeds] for variant in variants}
    path = report_runs(open_store(), f"{study.name}-claims", groups, tables)
    return f"{text}\npage: {path}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", choices=STUDIES, help="all, where none is named")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", help="only these; all have to exist in every study named")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    for name in args.studies or STUDIES:
        study = Study.load(name)
        variants = args.variants or list(study.variants)
        if unknown := set(variants) - set(study.variants):
            parser.error(f"{name} has no variant {', '.join(sorted(unknown))}; there are {', '.join(study.variants)}")
        write_down(study)
        prepare(study)
        for number, variant in enumerate(variants, start=1):
            for seed in args.seeds:
                play(study, variant, seed)
            print(report(study, variants[:number], [Seed(study, seed) for seed in args.seeds]), flush=True)


if __name__ == "__main__":
    main()
