"""The report of an iteration: one HTML file that needs nothing else, and the same in Markdown.

It reads what the run has published and knows no method: phases, roles, gates and metrics have their stored names.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tasks import report_checks as checks
from tasks import report_information as informing
from tasks import report_learning as learning
from tasks import report_types as types
from tasks.report_data import Row, Source, open_source
from tasks.report_draw import Colours, Plot, by, percent
from tasks.report_examples import Example, examples
from tasks.report_page import Section, render, write_page
from warehouse.store import Place

log = logging.getLogger("selfplay")

QUERIES = (
    "evaluations",
    "components",
    "difficulty",
    "selection_reasons",
    "gates",
    "topic_drift",
    "learnable_information",
    "task_types",
    "disagreements",
    "malformed",
    "answer_lengths",
    "searches",
    "judge",
    "updates",
    "stage_times",
    "wall_times",
    "volumes",
)


@dataclass(frozen=True)
class Contents:
    """All that a report shows: rows of every query by its name, figures, examples."""

    run: str
    iteration: int
    made_at: str
    rows: dict[str, list[Row]]
    sections: list[Section]
    examples: list[Example]


def report(place: Place, iteration: int) -> Path:
    """Write the report of a run up to an iteration; returns the HTML file. Missing data makes no figure, not an error.

    `place` is the run's place. Writes `<store>/reports/<run>/iter-00N.html` and `.md`, and `latest.html`; inside a
    Prefect flow run the Markdown becomes its artifact `<run>-iter-n`. An inquiry writes nothing.
    """
    started = time.monotonic()
    run = place.parts[0]
    if not place.store.freshness.works:
        return place.store.root / "reports" / run / f"iter-{iteration:03d}.html"
    with open_source(place.store, run, iteration) as source:
        contents = collect(source)
    html, markdown = render_report("report.html.jinja", contents), render_report("report.md.jinja", contents)
    path = write_page(place.store, f"{run}/iter-{iteration:03d}.html", html)
    write_page(place.store, f"{run}/iter-{iteration:03d}.md", markdown)
    write_page(place.store, f"{run}/latest.html", html)
    _as_prefect_artifact(run, iteration, markdown)
    log.info("%s: report in %.1f s", path, time.monotonic() - started)
    return path


def collect(source: Source) -> Contents:
    rows = {name: source.rows(name) for name in QUERIES}
    made_at = time.strftime("%Y-%m-%d %H:%M")
    return Contents(source.run, source.iteration, made_at, rows, _sections(rows, source.iteration), examples(source))


def _sections(rows: dict[str, list[Row]], iteration: int) -> list[Section]:
    colours = Colours()
    return [
        Section(
            "Learning",
            [
                learning.held_out(rows["evaluations"], colours),
                learning.held_out_parts(rows["evaluations"], colours),
                learning.task_scores(rows["components"], colours),
            ],
        ),
        Section(
            "Candidate tasks",
            [
                checks.difficulty(rows["difficulty"], rows["selection_reasons"]),
                checks.selection_reasons(rows["selection_reasons"], colours),
                checks.gates(rows["gates"], colours),
                checks.topic_drift(rows["topic_drift"]),
                informing.information(rows["learnable_information"]),
                *_if_drawn(types.difficulty_by_type(rows["task_types"]), types.kept_by_type(rows["task_types"])),
            ],
        ),
        Section(
            "Replies",
            [
                checks.malformed(rows["malformed"], iteration),
                learning.answer_lengths(rows["answer_lengths"], colours),
                learning.searches(rows["searches"], colours),
            ],
        ),
        Section(
            "Judge, updates, time",
            [
                checks.judge(rows["judge"], colours),
                *_if_drawn(types.disagreements(rows["disagreements"])),
                learning.updates(rows["updates"], colours),
                checks.wall_time(rows["wall_times"]),
            ],
        ),
    ]


def _if_drawn(*plots: Plot) -> list[Plot]:
    """Figures that only some runs have something for."""
    return [plot for plot in plots if plot.svg]


def headline(contents: Contents) -> list[tuple[str, str, str]]:
    """What to know first, as (name, value, remark)."""
    tiles = [_held_out_tile(name, found) for name, found in _scores(contents.rows["evaluations"]).items()]
    now = contents.iteration
    here = {name: [r for r in found if r.get("iteration") == now] for name, found in contents.rows.items()}
    if found := here["selection_reasons"]:
        kept = sum(r["n"] for r in found if r["reason"] == "kept")
        tiles.append(("tasks kept", f"{kept:,}", f"of {sum(r['n'] for r in found):,} candidates"))
    if found := here["malformed"]:
        num, bad = sum(r["n"] for r in found), sum(r["n"] for r in found if r["reason"] is not None)
        tiles.append(("malformed replies", percent(bad, num), f"{bad:,} of {num:,}"))
    for row in here["judge"]:
        if row["n"]:
            wrong = row["n"] - row["num_right"]
            remark = f"{wrong:,} of {row['n']:,} verdicts"
            tiles.append((f"judge error, {row['truth_of']}", percent(wrong, row["n"]), remark))
    for row in here["wall_times"]:
        share = percent(checks.neither_s(row), row["wall_s"])
        tiles.append(("wall time", checks.seconds(row["wall_s"]), f"{share} neither generation nor update"))
    return tiles


def _scores(evaluations: list[Row]) -> dict[str, list[Row]]:
    scores = [r for r in evaluations if r["metric"] == learning.SCORE and r["benchmark"] != learning.MONITOR]
    return by(scores, "benchmark")


def _held_out_tile(benchmark: str, rows: list[Row]) -> tuple[str, str, str]:
    last, found = rows[-1], learning.gain(rows)
    if found is None:
        error = last["standard_error"]
        return f"held-out score, {benchmark}", f"{last['score']:.3f}", f"± {error:.3f}" if error is not None else ""
    difference, error = found
    spread = f" ± {error:.3f}" if error is not None else ""
    remark = f"{difference:+.3f}{spread} since iteration {rows[0]['iteration']}"
    return f"held-out score, {benchmark}", f"{last['score']:.3f}", remark


def render_report(template: str, contents: Contents) -> str:
    tiles = headline(contents)
    return render(template, c=contents, sections=contents.sections, tiles=tiles, **contents.rows)


def artifact_key(run: str, iteration: int) -> str:
    """Prefect takes lower-case letters, digits and dashes.

    >>> artifact_key("Micro_seed.1", 3)
    'micro-seed-1-iter-3'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{run}-iter-{iteration}".lower()).strip("-")


def _as_prefect_artifact(run: str, iteration: int, markdown: str) -> None:
    from prefect.context import FlowRunContext

    if FlowRunContext.get() is None:
        return
    from prefect.artifacts import create_markdown_artifact

    description = f"Report of {run}, iteration {iteration}"
    create_markdown_artifact(markdown, key=artifact_key(run, iteration), description=description)
