"""A pilot's measurements: the numbers that say whether a run can learn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.pilot.play import Notes, num_steps
from flows.runtime.store_root import OWN_RULES
from flows.settings.profile import MethodSettings
from tasks.findings.find import Finding, findings
from tasks.monitors.limits import Limits
from tasks.monitors.monitor import is_of
from warehouse.lake import Lake
from warehouse.query import query
from warehouse.schemas import Row
from warehouse.store import Store

SQL = Path(__file__).parent / "sql"
EXAMPLE_LETTERS = 160
SERIOUS = "serious"
STOPPED = "stopped"  # the rule for a run that stopped, which a pilot's notes already say


@dataclass(frozen=True)
class RoleSignal:
    """A role's replies: how many, the share that could be read, why the others could not, their
    mean length in tokens, and the share cut off at the token limit.

    `reasons` maps each reason to the number of such replies and an example, most frequent first.
    """

    name: str
    num_replies: int
    readable: float
    reasons: dict[str, tuple[int, str]]
    num_tokens: float
    cut_off: float


@dataclass(frozen=True)
class FilterSignal:
    """A filter's candidates: how many there are, how many passed its tests, how many of these it
    kept, and how many it dropped for each reason."""

    name: str
    num_candidates: int
    num_passed: int
    num_kept: int
    reasons: dict[str, int]


@dataclass(frozen=True)
class RewardSignal:
    """A trained role's groups: how many an update compares, how many have differing rewards, and
    the mean population standard deviation of the rewards within a group."""

    role: str
    num_groups: int
    num_with_contrast: int
    spread: float


@dataclass(frozen=True)
class LimitedMetric:
    """The mean of a metric, and its limit in `monitor`, beyond which the run stops."""

    metric: str
    value: float
    limit: str


@dataclass(frozen=True)
class Signals:
    """Everything that a verdict is based on.

    `agreement`: the mean share of pairs of a judge's votes on an answer that agree, where 0.5 is
    chance; None if no judge votes several times. `metrics`: those with a limit in the
    configuration. `seconds`: the time that the pilot's stages took. `num_tokens`: the tokens
    sampled in the pilot. `num_steps`: how often the run repeats what the pilot did once.
    `findings`: the serious ones, such as rewards that are at chance according to a built-in world's
    truth. `caution`: what is known from earlier runs with such settings, if they learnt little.
    """

    roles: tuple[RoleSignal, ...]
    filters: tuple[FilterSignal, ...]
    rewards: tuple[RewardSignal, ...]
    agreement: float | None
    metrics: tuple[LimitedMetric, ...]
    seconds: float
    num_tokens: int
    num_steps: int
    notes: Notes
    findings: tuple[Finding, ...] = ()
    caution: str | None = None


def measure(store: Store, run: str, cfg: MethodSettings, notes: Notes) -> Signals:
    """The signals of a run's first step, from the tables that a pilot made.

    `cfg`: the run's configuration, whose limits apply. `notes`: what happened during the pilot.
    """
    rows = _ask(store, run)
    examples: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for row in rows["unreadable"]:
        examples[row["role"]][row["reason"]] = (row["replies"], _one_line(row["example"]))
    roles = tuple(
        RoleSignal(
            name=row["role"],
            num_replies=row["replies"],
            readable=row["readable"] / row["replies"],
            reasons=examples[row["role"]],
            num_tokens=row["tokens"],
            cut_off=row["cut_off"],
        )
        for row in rows["roles"]
    )
    rewards = tuple(
        RewardSignal(row["role"], row["groups"], row["with_contrast"], row["spread"] or 0.0)
        for row in rows["contrast"]
    )
    [votes] = rows["votes"]
    tables = [table for table in store.tables(run) if table.at.iteration == 1]
    return Signals(
        roles=roles,
        filters=_filters(rows["candidates"]),
        rewards=rewards,
        agreement=votes["agreement"],
        metrics=tuple(_limited(rows["metrics"], cfg.monitor)),
        seconds=sum(table.recipe["seconds"] for table in tables),
        num_tokens=round(sum(role.num_replies * role.num_tokens for role in roles)),
        num_steps=num_steps(cfg),
        notes=notes,
        findings=tuple(_serious(store, run)),
        caution=cfg.caution,
    )


def _serious(store: Store, run: str) -> Iterator[Finding]:
    """Yield the serious findings about the step that was played, except that it stopped."""
    for finding in findings(Lake(store), run, iteration=1, folders=(OWN_RULES,)):
        if finding.severity == SERIOUS and finding.rule != STOPPED:
            yield finding


def _limited(rows: list[Row], limits: Limits) -> Iterator[LimitedMetric]:
    """Yield the metrics that have a limit, such as `judge_error` with `max_judge_error = 0.3`."""
    for row in rows:
        for name, limit in limits:
            if limit is not None and is_of(row["metric"], name):
                least_or_most = name.partition("_")[0]
                yield LimitedMetric(row["metric"], row["value"], f"{least_or_most} {limit:g}")


def _ask(store: Store, run: str) -> dict[str, list[Row]]:
    """The rows of every query in the folder `sql`, by the query's name."""
    return {
        path.stem: query(store.root, path.read_text(encoding="utf-8"), {"run": run})
        for path in sorted(SQL.glob("*.sql"))
    }


def _filters(rows: list[dict[str, Any]]) -> tuple[FilterSignal, ...]:
    """One signal per filter, from rows per outcome.

    The rows (questions, kept, 12), (questions, too easy, 20) are one filter of 32 candidates.
    """
    outcomes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        outcomes[row["filter"] or "tasks"].append(row)
    return tuple(
        FilterSignal(
            name=name,
            num_candidates=sum(row["candidates"] for row in of_one),
            num_passed=sum(row["candidates"] for row in of_one if row["passed"]),
            num_kept=sum(row["candidates"] for row in of_one if row["kept"]),
            reasons={row["outcome"]: row["candidates"] for row in of_one if not row["kept"]},
        )
        for name, of_one in outcomes.items()
    )


def _one_line(reply: str | None) -> str:
    words = " ".join((reply or "").split())
    if len(words) > EXAMPLE_LETTERS:
        return words[:EXAMPLE_LETTERS] + " ..."
    return words
