"""Test papers' claims in the built-in worlds.

`python -m flows.app.claims [STUDY...]` runs methods, their ablations and the baselines with several
seeds each, and gives a verdict on each claim (`flows.app.evidence`). Differences are paired: the
runs of one seed have the same documents and the same held-out tasks.

Missing runs are started and unfinished ones resumed in this process, without Prefect's server.
After each variant the tables `data/bench/STUDY-claims.md` and `.jsonl`, the figure of all studies
(`claims.png`), the table of headline claims (`headlines.md`) and a page with figures are written.
The tables have a row for every variant with a finished run; the column *seeds* gives their number.
A variant without one keeps its older row (`flows.app.older_rows`). A run is finished if the store
holds it, fresh and to its end, or if it was kept in `data/bench/STUDY-runs.parquet`
(`flows.app.kept_runs`), perhaps from another machine. A run that an alarm stopped is finished, and
marked. Thresholds of claims are written down before any run; the tables say for which claims this
is so. `--list` plays nothing: it lists the finished runs and estimates how long the others take.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import itertools
import json
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from flows.app.claims_figure import draw_claims, read_effects
from flows.app.command.parameters import find_method
from flows.app.command.tables import print_table
from flows.app.evidence import SHOWN, TAIL, mean_interval
from flows.app.headlines import count_verdicts, headlines
from flows.app.kept_runs import NONE_KEPT, KeptRuns, Threshold, add, earliest, keep
from flows.app.older_rows import read_rows, with_older
from flows.app.study import KINDS, STUDIES, Claim, Seed, Study
from flows.runtime.machines import MachinePool
from flows.runtime.request import Request
from flows.runtime.store_root import WORKSPACE, open_store, store_root
from flows.runtime.unread import UnreadError
from flows.settings import profile as profiles
from flows.settings.profile import MethodSettings
from tasks.monitors.monitor import Alarm
from tasks.reports.runs import report_runs
from warehouse.draft import write_json
from warehouse.query import snapshot
from warehouse.schemas import Row
from warehouse.store import Store

BENCH = WORKSPACE / "data" / "bench"

EVALUATIONS = "evaluations"
# CUDA graphs take longer to capture than they save. The last three settings let parts of a study
# share a GPU, where others start, sleep and wake at any time.
ON_GPU: Mapping[str, Any] = {
    "engine.device": "cuda",
    "engine.enforce_eager": True,
    "engine.fixed_kv_cache": True,
    "engine.gpu_memory_utilization": 0.04,
    "preflight": False,
}
# vLLM serves adapters on GPUs in half precision only. From a trainer in float32, SmolLM2's
# log-probabilities differ a hundred times less in float16 than in bfloat16 (data/bench/gpu.jsonl).
ADAPTERS_ON_GPU: Mapping[str, Any] = {"engine.dtype": "float16"}


class End(NamedTuple):
    """How a finished run ended.

    `alarm` is the alarm that stopped it, or "". `in_store` tells whether the store holds the
    complete run, rather than only the file of kept runs.
    """

    alarm: str = ""
    in_store: bool = True


# (2, 3) is the second of three parts of a study; concurrent processes each play one part
Part = tuple[int, int]
WHOLE: Part = (1, 1)

# for each variant, the seeds whose runs are finished, and how each run ended
Runs = Mapping[str, Mapping[Seed, End]]


def kept_file(name: str) -> Path:
    """The file of a study's kept runs."""
    return BENCH / f"{name}-runs.parquet"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process that plays a part of a study is in this block."""
    BENCH.mkdir(parents=True, exist_ok=True)
    folder = os.open(BENCH, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def prepare(study: Study) -> None:
    """Prepare the corpus that the study's runs learn from, if it has one."""
    if study.corpus:
        method = find_method("prepare-corpus")
        with one_at_a_time():
            method.run(Request(flow=method.name, profile=study.corpus, run=study.corpus))


def request(study: Study, variant: str, seed: int) -> Request:
    """The request for a variant's run with one seed.

    It asks for one engine, because several seeds may run at the same time.
    """
    settings = {**study.variants[variant], "seed": study.seed_of(variant, seed), "num_engines": 1}
    name = study.run_name(variant, seed)
    flow = f"{study.method}-iteration"
    return Request(flow=flow, profile=study.profile_of(variant), run=name, overrides=settings)


def is_in_part(position: int, part: Part) -> bool:
    """Whether the run at a position of a study, counted from 0, belongs to a part.

    >>> [position for position in range(7) if is_in_part(position, (2, 3))]
    [1, 4]
    """
    number, num_parts = part
    return position % num_parts == number - 1


def on_gpu(request: Request) -> Request:
    """The same run with its engines and its trainer on a GPU."""
    cfg = profiles.load(find_method(request.flow).config, request.profile, request.settings)
    assert isinstance(cfg, MethodSettings)
    overrides = {**(request.overrides or {}), **ON_GPU}
    if cfg.engine.max_lora_rank:
        overrides |= ADAPTERS_ON_GPU
    return request.model_copy(update={"overrides": overrides})


def play(request: Request, pool: MachinePool | None = None) -> None:
    """Play or resume one run; with a `pool`, on machines that it shares with other runs."""
    began = time.monotonic()
    try:
        find_method(request.flow).run(request, pool=pool)
    except (Alarm, UnreadError) as stop:  # being stopped is also a result
        print(f"{request.run}: stopped: {stop}", flush=True)
    print(f"{request.run}: {time.monotonic() - began:.0f} s", flush=True)


def next_stage(request: Request) -> tuple[str | None, str]:
    """The next stage that a run would play, with the reason, and the alarm that stopped the run.

    The stage is None if the run is finished; the alarm is "" if none stopped it.
    """
    if not any(open_store().tables(request.run)):
        return "not begun", ""
    inquiry = find_method(request.flow).inquire(request, {})
    stale = (f"{address.partition('/')[2]}: {why}" for address, why in inquiry.reasons if why)
    return next(stale, None), inquiry.stopped or ""


def finished(study: Study, seeds: Sequence[int] | None = None, known: Runs | None = None) -> Runs:
    """The seeds whose runs are finished, by variant. Runs in `known` are not checked again.

    `seeds` are seeds to look for in addition to those of the study.
    """
    kept = KeptRuns.load(kept_file(study.name))
    runs: dict[str, dict[Seed, End]] = {variant: {} for variant in study.variants}
    for variant, ends in runs.items():
        numbers = sorted({*study.seeds(variant), *(seeds or ())})
        for seed in (Seed(study, number) for number in numbers):
            if known and seed in known.get(variant, {}):
                ends[seed] = known[variant][seed]
                continue
            asked = request(study, variant, seed.number)
            stage, alarm = next_stage(asked)
            if stage is None:
                ends[seed] = End(alarm)
            elif kept_run := kept.get(asked):
                ends[seed] = End(kept_run.stopped, in_store=False)
    return runs


def progress(study: Study, seeds: Sequence[int] | None = None) -> list[Row]:
    """One row per variant: its finished seeds, what the others would play next, and the time left.

    The estimate assumes that a run takes as long as the variant's finished runs on CPUs did on
    average or, if there are none, as the study's.
    """
    kept = KeptRuns.load(kept_file(study.name))
    # by variant: the next stage of each unfinished seed, the finished seeds, and the seconds of the
    # finished runs that used no GPU
    left: dict[str, dict[int, str]] = {variant: {} for variant in study.variants}
    finished_seeds: dict[str, list[int]] = {variant: [] for variant in study.variants}
    cpu_seconds: dict[str, list[float]] = {variant: [] for variant in study.variants}
    for variant in study.variants:
        for seed in unique(study, variant, seeds):
            asked = request(study, variant, seed)
            stage, _ = next_stage(asked)
            kept_run = kept.get(asked)
            if stage is not None and kept_run is None:
                left[variant][seed] = stage
                continue
            finished_seeds[variant].append(seed)
            if kept_run is None:
                cpu_seconds[variant].append(seconds(asked.run))
            elif not kept_run.gpu_s:
                cpu_seconds[variant].append(kept_run.seconds)
    of_study = list(chain.from_iterable(cpu_seconds.values()))
    rows = []
    for variant in study.variants:
        of_variant = cpu_seconds[variant]
        next_stages = together(left[variant])
        rows.append(
            {
                "study": study.name,
                "variant": variant,
                "finished seeds": ", ".join(map(str, finished_seeds[variant])),
                "left": "; ".join(
                    f"{', '.join(map(str, numbers))}: {stage}"
                    for stage, numbers in next_stages.items()
                ),
                "minutes left": _minutes(len(left[variant]), of_variant or of_study),
            }
        )
    return rows


def _minutes(num_runs: int, typical_s: Sequence[float]) -> int | None:
    """Estimated minutes for a number of runs, given the seconds of similar runs.

    None if there are no similar runs.
    """
    if num_runs == 0:
        return 0
    if typical_s:
        return round(num_runs * fmean(typical_s) / 60)
    return None


def together(left: Mapping[int, str]) -> dict[str, list[int]]:
    """Group seeds by their next stage.

    >>> together({0: "not begun", 2: "not begun"})
    {'not begun': [0, 2]}
    """
    seeds = defaultdict(list)
    for seed, stage in left.items():
        seeds[stage].append(seed)
    return dict(seeds)


def unique(study: Study, variant: str, seeds: Sequence[int] | None) -> list[int]:
    """The seeds that give distinct runs of a variant; None stands for the study's seeds."""
    numbers = study.seeds(variant) if seeds is None else seeds
    return list(dict.fromkeys(study.seed_of(variant, number) for number in numbers))


def seconds(run: str) -> float:
    """The total seconds of a run's stages."""
    return sum(table.recipe["seconds"] for table in open_store().tables(run))


def write_down(study: Study) -> dict[str, Threshold]:
    """Record the thresholds of new claims in the store, and return those of all claims.

    Each threshold is the one at the time when the claim was first seen here, with that time.
    """
    path = open_store().root / "claims" / f"{study.name}.json"
    now = time.time()
    known = {}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
    new = {claim.says: Threshold(threshold=claim.threshold, at=now) for claim in study.claims}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, new | known)
    return new | known


def set_before(
    claim: Claim, written: Threshold, study: Study, seeds: Sequence[Seed], kept: KeptRuns
) -> bool:
    """Whether a claim's threshold was recorded before its runs began, and has not changed since."""
    names = {
        study.run_name(variant, seed.number) for variant in claim.runs.values() for seed in seeds
    }
    first = math.inf
    for name in names:
        if name in kept.runs:
            first = min(first, kept.runs[name].began)
        else:
            first = min(first, began(store_root(), name))
    return written["threshold"] == claim.threshold and written["at"] <= first


@functools.cache
def began(root: Path, run: str) -> float:
    """When the first table of a finished run was begun, in seconds since 1970."""
    return min((table.recipe["started_at"] for table in Store(root).tables(run)), default=math.inf)


def describe_variants(study: Study, runs: Runs, kept: KeptRuns = NONE_KEPT) -> list[Row]:
    """One row per variant: its initial held-out score, its gain, and the last value of every
    metric."""
    rows = []
    used_gpu = {name for name, run in kept.runs.items() if run.gpu_s}
    is_any_stopped = any(end.alarm for ends in runs.values() for end in ends.values())
    for variant, seeds in runs.items():
        scores = [seed.series(variant) for seed in seeds]
        gains = [seed.gain(variant) for seed in seeds]
        row: Row = {"variant": variant, "seeds": counted(seeds, len(study.seeds(variant)))}
        if is_any_stopped:
            row["stopped by an alarm"] = sum(end.alarm != "" for end in seeds.values())
        if used_gpu:
            row["on a GPU"] = sum(
                study.run_name(variant, seed.number) in used_gpu for seed in seeds
            )
        row["before"] = summary([series[0] for series in scores])
        row["gain"] = summary(gains)
        for column, (benchmark, metric) in study.metrics.items():
            measured = [seed.series(variant, metric, benchmark) for seed in seeds]
            ends = [series[-1] for series in measured if series]
            row[column] = summary(ends) if ends else "–"
        rows.append(row)
    return rows


def judge_claims(study: Study, runs: Runs, kept: KeptRuns = NONE_KEPT) -> list[Row]:
    """One row per claim, over the seeds that all its variants have; the paper's claims come first.

    A seed's number is marked if an alarm stopped one of its runs. A claim about tables other than
    `evaluations` uses only seeds whose complete runs are in the store.
    """
    rows = []
    written = earliest(write_down(study), kept.thresholds)
    for claim in by_kind(study.claims):
        first, *others = claim.runs.values()
        seeds = [
            seed
            for seed in runs.get(first, {})
            if all(seed in runs.get(other, {}) for other in others)
        ]
        if claim.tables != [EVALUATIONS]:
            seeds = [
                seed
                for seed in seeds
                if all(runs[variant][seed].in_store for variant in claim.runs.values())
            ]
        if not seeds:
            continue
        values = [seed.value(claim) for seed in seeds]
        by_seed = []
        for seed, value in zip(seeds, values, strict=True):
            is_stopped = any(runs[variant][seed].alarm for variant in claim.runs.values())
            by_seed.append(f"{value:.3f}" + " (stopped)" * is_stopped)
        is_set_before = set_before(claim, written[claim.says], study, seeds, kept)
        verdict = claim.judge(values)
        rows.append(
            {
                "claim": claim.says,
                "kind": claim.kind,
                "paper": claim.source,
                "paper reports": claim.reported,
                "number": claim.number,
                "threshold": claim.threshold,
                "set before": "yes" if is_set_before else "no",
                "seeds": counted(seeds, claim.seeds or study.num_seeds),
                "mean [95%]": str(verdict.interval),
                "by seed": ", ".join(by_seed),
                "verdict": verdict.says,
                "smallest visible": _smallest_visible(verdict.smallest_visible),
            }
        )
    return rows


def by_kind(claims: Iterable[Claim]) -> list[Claim]:
    """Claims of the paper first, then symptoms, then checks."""
    return sorted(claims, key=lambda claim: KINDS.index(claim.kind))


def _smallest_visible(effect: float) -> str:
    if math.isinf(effect):
        return "–"
    return f"{effect:.3f}"


def chance(claims: Sequence[Row]) -> str:
    """How many claims are *shown*, and how many of these would be expected by chance."""
    num_shown = sum(row["verdict"] == SHOWN for row in claims)
    expected = len(claims) * TAIL
    return (
        f"{num_shown} of {len(claims)} claims have the verdict *shown*. If no effect were real,"
        f" {expected:.1f} would be expected by chance."
    )


def counted(seeds: Collection[Seed], needed: int) -> str:
    """How many seeds a row is computed from and, if fewer than `needed`, how many it needs."""
    if len(seeds) >= needed:
        return str(len(seeds))
    return f"{len(seeds)} of {needed}"


def summary(values: Sequence[float]) -> str:
    """The mean over seeds and its 95% interval.

    >>> summary([0.25, 0.25, 0.25]), summary([0.5])
    ('0.250 [0.250, 0.250]', '0.500')
    """
    return str(mean_interval(values))


def as_markdown(rows: list[Row]) -> str:
    """
    >>> print(as_markdown([{"claim": "it learns", "shows": "yes"}]), end="")
    | claim | shows |
    | --- | --- |
    | it learns | yes |
    """
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def keep_finished(study: Study, runs: Runs) -> KeptRuns:
    """Keep the finished runs that the store holds; return all kept runs."""
    finished_here = [
        (request(study, variant, seed.number), end.alarm)
        for variant, ends in runs.items()
        for seed, end in ends.items()
        if end.in_store
    ]
    path = kept_file(study.name)
    keep(path, open_store(), finished_here, write_down(study))
    return KeptRuns.load(path)


def report(study: Study, runs: Runs) -> str:
    """Write the tables of a study's finished runs to `data/bench`, and the page of its runs;
    returns the tables as Markdown, with the page's path."""
    groups = {
        variant: {str(seed.number): study.run_name(variant, seed.number) for seed in seeds}
        for variant, seeds in runs.items()
    }
    names = list(chain.from_iterable(group.values() for group in groups.values()))
    kept = keep_finished(study, runs)
    others = [name for name in study.tables if name != EVALUATIONS]
    given = {EVALUATIONS: kept.evaluations(names)}
    with snapshot(store_root(), others, names, given) as ask:
        in_snapshot = {
            variant: {replace(seed, ask=ask): end for seed, end in ends.items()}
            for variant, ends in runs.items()
        }
        variants = describe_variants(study, in_snapshot, kept)
        claims = judge_claims(study, in_snapshot, kept)
    claims, variants = _with_older(study, claims, variants)
    tables = {"Claims": claims, "Variants, at the end of their runs": variants}
    parts = [as_markdown(rows) for rows in tables.values() if rows]
    if claims:
        parts.insert(1, f"{chance(claims)}\n")
    text = "\n".join(parts)
    BENCH.mkdir(parents=True, exist_ok=True)
    (BENCH / f"{study.name}-claims.md").write_text(text, encoding="utf-8")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in [*claims, *variants]]
    (BENCH / f"{study.name}-claims.jsonl").write_text("".join(lines), encoding="utf-8")
    if studies := read_effects(BENCH):
        draw_claims(studies, BENCH / "claims.png")
    write_headlines()
    path = report_runs(
        open_store(),
        f"{study.name}-claims",
        groups,
        tables,
        evaluations=given[EVALUATIONS],
    )
    return f"{text}\npage: {path}"


def _with_older(
    study: Study, claims: list[Row], variants: list[Row]
) -> tuple[list[Row], list[Row]]:
    older = read_rows(BENCH / f"{study.name}-claims.jsonl")
    wanted = {
        claim.says: {"kind": claim.kind, "number": claim.number, "threshold": claim.threshold}
        for claim in by_kind(study.claims)
    }
    return (
        with_older(claims, older, "claim", wanted),
        with_older(variants, older, "variant", {name: {} for name in study.variants}),
    )


def write_headlines() -> None:
    """Write the table of headline claims, from the tables of all studies."""
    rows = headlines(BENCH)
    text = f"{count_verdicts(rows)}\n\n{as_markdown(rows)}"
    (BENCH / "headlines.md").write_text(text, encoding="utf-8")


def add_runs(study: Study, files: Iterable[Path]) -> None:
    """Add the kept runs of other machines to those of a study, and report all finished runs.

    Raises FileNotFoundError and ValueError as `kept_runs.add` does.
    """
    write_down(study)
    with one_at_a_time():
        for file in files:
            print(f"{file}: {len(add(kept_file(study.name), file))} new runs", flush=True)
        begun = {name: ends for name, ends in finished(study).items() if ends}
        print(report(study, begun), flush=True)


def play_study(
    study: Study,
    variants: Sequence[str],
    seeds: Sequence[int] | None,
    again: bool = False,
    gpu: bool = False,
    part: Part = WHOLE,
) -> None:
    """Play the variants one after the other, and report all finished runs after each.

    `again`: also the runs that were kept; `gpu`: on a GPU; `part`: only the runs of this
    part.
    """
    write_down(study)
    prepare(study)
    with closing(MachinePool()) as pool:
        _play_variants(study, variants, seeds, pool, again, gpu, part)


def _play_variants(
    study: Study,
    variants: Sequence[str],
    seeds: Sequence[int] | None,
    pool: MachinePool,
    again: bool,
    gpu: bool,
    part: Part,
) -> None:
    kept = KeptRuns.load(kept_file(study.name))
    runs: Runs = {}
    position = itertools.count()
    for variant in variants:
        known = dict(runs)
        for seed in unique(study, variant, seeds):
            asked = request(study, variant, seed)
            if is_in_part(next(position), part) and (again or kept.get(asked) is None):
                play(on_gpu(asked) if gpu else asked, pool)
                known.pop(variant, None)  # runs that only the kept file held are now in the store
        runs = finished(study, seeds, known)
        begun = {name: ends for name, ends in runs.items() if ends}
        with one_at_a_time():
            print(report(study, begun), flush=True)


def main() -> None:
    """Play the studies named on the command line, or list their unfinished runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(STUDIES)
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help=f"studies to play, of {names} (default: all)"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="seeds to play (default: as many as the claims need)"
    )
    parser.add_argument(
        "--variants", nargs="+", help="play only these variants, which every study must have"
    )
    parser.add_argument(
        "--list", action="store_true", help="play nothing; list what is finished and what is left"
    )
    parser.add_argument("--again", action="store_true", help="play also the runs that were kept")
    parser.add_argument("--gpu", action="store_true", help="play on a GPU")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    try:
        run_studies(args.studies, args.seeds, args.variants, args.list, args.again, args.gpu)
    except ValueError as problem:
        parser.error(str(problem))


def load_studies(names: Sequence[str]) -> list[Study]:
    """The studies of these names. Raises ValueError for a study that does not exist."""
    if unknown := set(names) - set(STUDIES):
        raise ValueError(
            f"there is no study {', '.join(sorted(unknown))}; there are {', '.join(STUDIES)}"
        )
    return [Study.load(name) for name in names]


def run_studies(
    names: Sequence[str],
    seeds: Sequence[int] | None,
    variants: Sequence[str] | None,
    lists: bool = False,
    again: bool = False,
    gpu: bool = False,
    part: Part = WHOLE,
) -> None:
    """Play studies, all of them if `names` is empty; with `lists`, only list unfinished runs.

    `again`: also the runs that were kept; `gpu`: on a GPU; `part`: only this part of each.

    Raises ValueError for a study or a variant that does not exist.
    """
    studies = load_studies(names or STUDIES)
    for study in studies:
        if unknown := set(variants or ()) - set(study.variants):
            raise ValueError(
                f"{study.name} has no variant {', '.join(sorted(unknown))}; there are"
                f" {', '.join(study.variants)}"
            )
    if lists:
        rows = [row for study in studies for row in progress(study, seeds)]
        print_table([row for row in rows if variants is None or row["variant"] in variants])
        return
    for study in studies:
        play_study(study, variants or list(study.variants), seeds, again, gpu, part)


if __name__ == "__main__":
    main()
