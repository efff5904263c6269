"""`selfplay evaluate --dry-run`: what a paper's evaluation requires, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from flows.app.command.tables import print_table
from flows.benchmarks.averages import notes_on
from flows.benchmarks.planned import PlannedBenchmark, planned, scored_by
from flows.settings.profile import MethodSettings


def print_evaluation_plan(
    paper: str | None,
    names: tuple[str, ...],
    cfg: MethodSettings | None,
    card: str,
    items: int | None,
) -> None:
    """Print items, answers, tokens, hours and judge calls for every benchmark of `paper`.

    `cfg`: the settings of a method, from which the hours on GPUs of the kind `card` are computed;
    None leaves them out. `items`: the maximum number of items per benchmark. Raises ValueError for
    an unknown paper or card.
    """
    if paper is None:
        raise ValueError("--dry-run needs --paper PAPER, or --profile FLOW/PROFILE of its method")
    rows = [_drawn(row, items) for row in planned(paper, names)]
    thinks = getattr(getattr(cfg, "dialogues", None), "reasoning", False)
    table = [_row(row, cfg, card, thinks) for row in rows]
    totals = {
        column: sum(line[column] for line in table)
        for column in ("answers", "prompt tokens", "reply tokens", "judge calls", "hours")
        if column in table[0]
    }
    click.echo(
        f"computed plan of the evaluation of {paper}: nothing is read or run; assumes lengths of"
        f" replies of {'thinking' if thinks else 'plain'} models"
    )
    whole = dict.fromkeys(table[0], "") | {"benchmark": "all"} | totals
    lines = [*table, whole | {"items": sum(line["items"] for line in table)}]
    print_table([_as_text(line) for line in lines], f"{len(rows)} benchmarks")
    differing = [row for row in rows if row.protocol.differs]
    for row in differing:
        click.echo(f"{row.benchmark.name} differs: {'; '.join(row.protocol.differs)}")
    for note in notes_on(paper):
        click.echo(f"in all of them: {note}")
    unknown = [row.benchmark.name for row in rows if row.num_items is None]
    if unknown:
        click.echo(f"not counted, since their number of items changes: {', '.join(unknown)}")


def _drawn(row: PlannedBenchmark, items: int | None) -> PlannedBenchmark:
    if not items or row.num_items is None:
        return row
    return replace(row, num_items=min(row.num_items, row.benchmark.num_asked(items)))


def _row(
    row: PlannedBenchmark, cfg: MethodSettings | None, card: str, thinks: bool
) -> dict[str, Any]:
    asked = list(row.conversations(thinks=thinks))
    answers = asked[0]
    lengths = answers.role.lengths
    line: dict[str, Any] = {
        "benchmark": row.benchmark.name,
        "items": row.num_items or 0,
        "answers": row.num_answers,
        "prompt tokens": answers.prompts * lengths.prompt,
        "reply tokens": answers.number * lengths.turns * lengths.sampled,
        "judge calls": row.num_verdicts,
        "scored": scored_by(row),
    }
    if cfg is not None and cfg.engine.device == "cuda":
        line["hours"] = _seconds(cfg, card, answers) / 3600
    return line


def _seconds(cfg: MethodSettings, card: str, answers: Any) -> float:
    from flows.plan.hardware import GPUS
    from flows.plan.seconds import Clock
    from flows.plan.shapes import shape_of

    if card not in GPUS:
        raise ValueError(f"no GPU {card!r}; there are {', '.join(GPUS)}")
    if not answers.number:
        return 0.0
    clock = Clock(cfg, shape_of(cfg.models.base), GPUS[card])
    return clock.generated(answers, answers.role.lengths, adapter=False).seconds


def _as_text(line: dict[str, Any]) -> dict[str, Any]:
    def text(value: Any) -> Any:
        if isinstance(value, float) and value < 1000:
            return f"{value:.2f}"
        if isinstance(value, float | int):
            return f"{value:,.0f}"
        return value

    return {key: text(value) for key, value in line.items()}
