"""Finished runs of a study, kept without their stores.

`data/bench/STUDY-runs.parquet` holds the `evaluations` rows of every finished run, from which the
study's tables are computed. So a study of hundreds of runs can be played on several machines, or on
one that is lost afterwards, and anyone can recompute its numbers:

    select run, iteration, score from 'data/bench/spice-runs.parquet' where metric = 'score'

A kept run counts as finished as long as the study asks for the same settings. Delete its rows, or
the file, to play it again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flows.app.command.parameters import find_method
from flows.runtime.request import Request
from flows.runtime.store_root import SOURCE
from flows.settings import profile as profiles
from warehouse.draft import hash_json
from warehouse.export import write_parquet
from warehouse.query import snapshot
from warehouse.schemas import TABLES
from warehouse.store import Store

EVALUATIONS = TABLES["evaluations"]
THRESHOLDS = b"thresholds"  # metadata key of `KeptRuns.thresholds`
# columns in which a table's view states the place of each row
PLACE = [
    pa.field("run", pa.string(), nullable=False),
    pa.field("iteration", pa.int64()),
    pa.field("phase", pa.string()),
    pa.field("step", pa.int64()),
    pa.field("label", pa.string()),
]
# facts about the run, repeated in each of its rows
FIELDS = [
    pa.field("settings", pa.string(), nullable=False),
    pa.field("version", pa.string(), nullable=False),
    pa.field("began", pa.float64(), nullable=False),
    pa.field("seconds", pa.float64(), nullable=False),
    pa.field("stopped", pa.string(), nullable=False),
    pa.field("gpu_s", pa.float64(), nullable=False),
]
# settings that affect where and how fast replies are sampled, but not what a run computes
WHERE = {"engine", "judge_engine", "preflight"}
VIEW = pa.schema([*PLACE, *EVALUATIONS.arrow])
SCHEMA = pa.schema([*VIEW, *FIELDS])


class Threshold(TypedDict):
    """The threshold of a claim, and when it was recorded, in seconds since 1970."""

    threshold: str
    at: float


@dataclass(frozen=True)
class KeptRun:
    """A finished run.

    `settings`: `settings_hash` of its request; `version`: the project's version when the run was
    kept; `began`: when the run began, in seconds since 1970; `seconds`: total time of all stages;
    `stopped`: the alarm that stopped it, or ""; `gpu_s`: GPU-seconds of its stages, 0 on a machine
    without a GPU.
    """

    settings: str
    version: str
    began: float
    seconds: float
    stopped: str
    gpu_s: float


@dataclass(frozen=True)
class KeptRuns:
    """The kept runs of a study.

    `runs`: by name; `rows`: their evaluations, with the columns of `SCHEMA`; `thresholds`: those of
    the study's claims, by the text of the claim.
    """

    runs: Mapping[str, KeptRun] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=SCHEMA.empty_table)
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> KeptRuns:
        """The runs in a file; none if it does not exist.

        Raises ValueError for a file that is damaged or has different columns.
        """
        if not path.exists():
            return cls()
        try:
            table = pq.read_table(path)
            rows = table.select(SCHEMA.names).cast(SCHEMA)
            thresholds = json.loads((table.schema.metadata or {}).get(THRESHOLDS, b"{}"))
        except (pa.ArrowException, ValueError, KeyError) as problem:
            raise ValueError(
                f"{path} does not hold runs of a study ({problem}); restore it, or delete it to"
                " play its runs again"
            ) from None
        names = [field.name for field in FIELDS]
        runs = {}
        for row in rows.select(["run", *names]).group_by(["run", *names]).aggregate([]).to_pylist():
            run = row.pop("run")
            runs[run] = KeptRun(**row)
        return cls(runs, rows, thresholds)

    def get(self, request: Request) -> KeptRun | None:
        """The kept run of a request; None if there is none, or if its settings differ."""
        kept = self.runs.get(request.run)
        if kept is None or kept.settings != settings_hash(request):
            return None
        return kept

    def evaluations(self, runs: Iterable[str]) -> pa.Table:
        """The rows of the given runs, with the columns of the view `evaluations`."""
        wanted = pa.array(sorted(runs), pa.string())
        rows = self.rows.filter(pc.field("run").isin(wanted))
        return rows.select(VIEW.names)


NONE_KEPT = KeptRuns()


def keep(
    path: Path,
    store: Store,
    finished: Iterable[tuple[Request, str]],
    thresholds: Mapping[str, Threshold],
) -> None:
    """Add finished runs of a store to a file, replacing runs of the same names.

    `finished` holds their requests, each with the alarm that stopped it, or "". If both the file
    and `thresholds` have a threshold for a claim, the one recorded first stays.
    """
    kept = KeptRuns.load(path)
    version = project_version()
    runs = {}
    for request, stopped in finished:
        recipes = [table.recipe for table in store.tables(request.run)]
        if not recipes:  # the run was kept from another store
            continue
        run = KeptRun(
            settings=settings_hash(request),
            version=version,
            began=min(recipe["started_at"] for recipe in recipes),
            seconds=sum(recipe["seconds"] for recipe in recipes),
            stopped=stopped,
            gpu_s=sum(recipe.get("gpu_s") or 0.0 for recipe in recipes),
        )
        known = kept.runs.get(request.run)
        if known and replace(known, version=version) == run:  # already kept, by another version
            run = known
        runs[request.run] = run
    rows = [row for row in kept.rows.to_pylist() if row["run"] not in runs]
    with snapshot(store.root, ["evaluations"], runs) as ask:
        for row in ask("select * from evaluations", {}):
            rows.append({**row, **vars(runs[row["run"]])})
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    _write(path, table, earliest(kept.thresholds, thresholds))


def add(path: Path, other: Path) -> list[str]:
    """Add the runs of another machine's file to a file; return the names of the runs added.

    If a run of the same name is already there, it stays if it has the same settings or began later.
    Raises FileNotFoundError if the other file does not exist, and ValueError as `KeptRuns.load`
    does.
    """
    if not other.exists():
        raise FileNotFoundError(f"there is no file {other}")
    kept = KeptRuns.load(path)
    more = KeptRuns.load(other)
    new = [name for name, run in more.runs.items() if is_news(run, kept.runs.get(name))]
    is_new = pc.field("run").isin(pa.array(new, pa.string()))
    table = pa.concat_tables([kept.rows.filter(~is_new), more.rows.filter(is_new)])
    _write(path, table, earliest(kept.thresholds, more.thresholds))
    return sorted(new)


def is_news(run: KeptRun, known: KeptRun | None) -> bool:
    """Whether a run replaces the known run of its name."""
    if known is None:
        return True
    return run.settings != known.settings and run.began > known.began


def _write(path: Path, table: pa.Table, thresholds: Mapping[str, Threshold]) -> None:
    """Replace a file of kept runs."""
    table = table.sort_by(
        [(name, "ascending") for name in ("run", "iteration", "benchmark", "metric", "step")]
    )
    table = table.replace_schema_metadata(
        {THRESHOLDS: json.dumps(thresholds, sort_keys=True).encode()}
    )
    fresh = path.with_name(f"{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    with fresh.open("wb") as file:
        write_parquet(table.to_reader(), file)
    os.replace(fresh, path)


def project_version() -> str:
    """The commit of a checkout, else the installed release.

    A commit ends in "+" if the checkout has changes.
    """
    command = ["git", "-C", str(SOURCE), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return metadata.version("selfplay-flows")
    return told.stdout.strip()


def earliest(*several: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """For each claim, the threshold that was recorded first."""
    first: dict[str, Threshold] = {}
    for thresholds in several:
        for says, threshold in thresholds.items():
            if says not in first or threshold["at"] < first[says]["at"]:
                first[says] = threshold
    return first


def settings_hash(request: Request) -> str:
    """The hash of a request's non-default settings, without those in `WHERE`.

    A run on a GPU therefore counts as the same run on CPUs. A setting that the project adds later,
    with a default, does not change the hash. Raises ValueError for a wrong setting.
    """
    cfg = profiles.load(find_method(request.flow).config, request.profile, request.settings)
    settings: dict[str, Any] = cfg.model_dump(mode="json", exclude_defaults=True, exclude=WHERE)
    return hash_json({"flow": request.flow, **settings})
