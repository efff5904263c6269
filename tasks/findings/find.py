"""Findings: what a reader of a run should know first, in a few sentences computed by rules.

    for finding in findings(Lake(store), "mine"):
        print(finding.severity, finding.sentence)

A run without a problem has none: the list is empty, and nothing should be shown. The most serious
come first, and each rule yields at most one. Rules are SQL files (see `tasks.findings.rules`);
`flows.app.findings` adds those of the user.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tasks.findings.rules import SEVERITIES, Rule, Unreadable, read_rules
from tasks.reports.data import described, tables_until
from tasks.reports.percent import percent
from tasks.reports.statement import parameters_of, with_values
from warehouse.lake import Lake
from warehouse.schemas import Row
from warehouse.stopped import stopped

Ask = Callable[[str, dict[str, Any]], list[Row]]  # a statement and its parameters
MOST_ROWS = 50
BROKEN = "note"
# what a statement, or the template of a sentence, may raise: a missing column, a null formatted as
# a number, ...
WRONG_RULE = (duckdb.Error, LookupError, ValueError, TypeError, AttributeError)


class _Sentences(string.Formatter):
    """`str.format`, except that `{share:%}` is written as shares are everywhere."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return percent(value)
        return super().format_field(value, format_spec)


SENTENCES = _Sentences()


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, with its number and its rows.

    `number` is what the sentence is about, and `compared_with` the value it is compared with, in
    the same unit, or None; `comparison` says in words what that value is. `sql` selects the rows of
    the finding and can be run with `selfplay sql`. `rows` are the first of them, at most MOST_ROWS:
    their columns depend on the rule, and link as everywhere by `rollout_id`, `task_id`, `group_id`,
    `judge_rollout_id` and the place (iteration, phase, step). `page` is the page of the viewer that
    shows such rows, one of `tasks.findings.rules.PAGES`. `iteration`, `phase` and `step` say where
    the finding holds, or are None.
    """

    rule: str
    title: str
    severity: str  # serious, warning or note
    sentence: str
    number: float | None
    compared_with: float | None
    comparison: str
    sql: str
    rows: tuple[Row, ...]
    page: str
    iteration: int | None = None
    phase: str | None = None
    step: int | None = None


def findings(
    lake: Lake,
    run: str,
    *,
    iteration: int | None = None,
    folders: Iterable[Path] = (),
    only: str | None = None,
) -> list[Finding]:
    """The findings of a run, up to an iteration if one is given, most serious first.

    `folders` hold further rules; `only` names a single rule to apply. A rule that cannot be
    computed becomes a finding that says why; so does one that cannot be read, unless `only` is
    given. What stopped the run is a finding of its last iteration only.
    """
    tables = lake.tables(run)
    near = None
    if iteration is not None:
        near = tables_until(tables, iteration)
    cause = None
    if near is None or len(near) == len(tables):
        cause = stopped(lake.store, run)
    values = {
        "run": run,
        "made": described(near if near is not None else tables),
        "settings": json.dumps(lake.store.kept(run, "config.json") or {}),
        "stopped": json.dumps({"kind": cause.kind, "why": cause.why}) if cause else None,
    }

    def ask(sql: str, parameters: dict[str, Any]) -> list[Row]:
        return lake.query(run, sql, parameters, near).rows

    of_run = []
    for rule in read_rules(folders):
        if isinstance(rule, Unreadable):
            if only is None:
                of_run.append(_broken("rules", str(rule)))
            continue
        if only is not None and rule.name != only:
            continue
        try:
            finding = _apply(rule, ask, values)
        except WRONG_RULE as problem:
            finding = _broken(rule.name, f"the rule {rule.name} cannot be computed: {problem}")
        if finding is not None:
            of_run.append(finding)
    return sorted(of_run, key=lambda finding: SEVERITIES.index(finding.severity))


def _apply(rule: Rule, ask: Ask, values: dict[str, Any]) -> Finding | None:
    known = {**values, **rule.thresholds}
    measured = ask(rule.measure, parameters_of(rule.measure, known))
    if not measured:
        return None
    row = measured[0]
    sql = with_values(rule.rows, parameters_of(rule.rows, {**known, **row}))
    return Finding(
        rule=rule.name,
        title=rule.title,
        severity=rule.severity,
        sentence=SENTENCES.vformat(rule.sentence, (), {**rule.thresholds, **row}),
        number=row["number"],
        compared_with=row["compared_with"],
        comparison=rule.comparison,
        sql=sql,
        rows=tuple(ask(f"select * from ({sql}\n) limit {MOST_ROWS}", {})),
        page=rule.page,
        iteration=row.get("iteration"),
        phase=row.get("phase"),
        step=row.get("step"),
    )


def _broken(rule: str, problem: str) -> Finding:
    """A rule that cannot be read or computed, as a finding."""
    return Finding(
        rule=rule,
        title="a rule that cannot be computed",
        severity=BROKEN,
        sentence=" ".join(problem.split()),
        number=None,
        compared_with=None,
        comparison="",
        sql="",
        rows=(),
        page="",
    )
