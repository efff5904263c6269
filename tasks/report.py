"""The report of an iteration: one self-contained HTML file, and the same in Markdown.

It reads published tables and knows no method: phases, roles, gates and metrics keep their stored names.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.reports import checks, learning, measures, needles, types
from tasks.reports import information as informing
from tasks.reports.data import Source, open_source, tables_until
from tasks.reports.draw import Colours, Plot, by, percent
from tasks.reports.examples import Example, examples
from tasks.reports.page import HERE, Section, render, report_file, viewer_page, write_page
from warehouse.code import fingerprint
from warehouse.draft import hash_file, hash_json
from warehouse.query import SQL, replies_view
from warehouse.schemas import Row
from warehouse.store import Place, Store

log = logging.getLogger("selfplay")

QUERIES = (
    "evaluations",
    "needles",
    "task_scores",
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
    """All that a report shows: the rows of every query, by its name; figures; examples."""

    run: str
    iteration: int
    made_at: str
    rows: dict[str, list[Row]]
    sections: list[Section]
    examples: list[Example]


def report(place: Place, iteration: int) -> Path:
    """Write the report of a run up to an iteration; return the HTML file. Without its data a figure is left out.

    `place` is the run's place. Writes `<store>/reports/<run>/iter-00N.html` and `.md`, and `latest.html`; inside a
    Prefect flow run the Markdown becomes its artifact `<run>-iter-n`. A report that the same code made of the same
    tables is left as it is, and an inquiry writes nothing.
    """
    store, run, started = place.store, place.at.run, time.monotonic()
    path = report_file(store, run, iteration)
    if not store.freshness.builds:
        return path
    mark = f"<!-- made from {made_from(store, run, iteration)} -->\n"
    if path.with_suffix(".md").exists() and _ends_with(path, mark):
        log.info("%s: fresh", path)
    else:
        with open_source(store, run, iteration) as source:
            contents = collect(source)
        html = render_report("report.html.jinja", contents) + mark
        write_page(store, f"{run}/latest.html", html)
        write_page(store, f"{run}/iter-{iteration:03d}.md", render_report("report.md.jinja", contents))
        write_page(store, f"{run}/iter-{iteration:03d}.html", html)
        log.info("%s: report in %.1f s", path, time.monotonic() - started)
    viewer = viewer_page(run)
    served = f"[Viewer]({viewer}) · [report]({viewer}/report?iteration={iteration})"
    links = f"{served} (`selfplay view {run}` serves both), `{path}`\n\n"
    _as_prefect_artifact(run, iteration, links + path.with_suffix(".md").read_text(encoding="utf-8"))
    return path


def made_from(store: Store, run: str, iteration: int) -> str:
    """A hash of everything that determines a report: code, queries, templates, and the tables up to its iteration."""
    files = [*HERE.glob("report*.jinja"), *(SQL / "report").iterdir(), *(SQL / "views").iterdir()]
    tables = [
        [table.address, table.content_hash, table.recipe["started_at"], table.recipe["seconds"]]
        for table, _ in tables_until(store, run, iteration)
    ]
    return hash_json([fingerprint(report), replies_view(), [hash_file(file) for file in sorted(files)], tables])


def _ends_with(path: Path, mark: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8").endswith(mark)


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
                *_if_drawn(measures.also_measured(rows["evaluations"]), needles.found(rows["needles"])),
                learning.task_scores(rows["task_scores"], colours),
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
                _judge(rows, colours),
                *_if_drawn(types.disagreements(rows["disagreements"])),
                learning.updates(rows["updates"], colours),
                checks.wall_time(rows["wall_times"]),
            ],
        ),
    ]


def _judge(rows: dict[str, list[Row]], colours: Colours) -> Plot:
    """Verdicts with a known truth, or else marks."""
    verdicts, marks = checks.judge(rows["judge"], colours), measures.judge_monitor(rows["evaluations"])
    return marks if marks.svg and not verdicts.svg else verdicts


def _if_drawn(*plots: Plot) -> list[Plot]:
    """The plots that were drawn; only some runs have data for these."""
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
    viewer = viewer_page(contents.run)
    return render(template, c=contents, sections=contents.sections, tiles=tiles, viewer=viewer, **contents.rows)


def artifact_key(run: str, iteration: int) -> str:
    """Prefect takes lower-case letters, digits and dashes.

    >>> artifact_key("Micro_seed.1", 3)
    'micro-seed-1-iter-3'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{run}-iter-{iteration}".lower()).strip("-")


def _as_prefect_artifact(run: str, iteration: int, markdown: str) -> None:
    context = sys.modules.get("prefect.context")  # if it was never imported, no flow is running
    if context is None or context.FlowRunContext.get() is None:
        return
    from prefect.artifacts import create_markdown_artifact

    description = f"Report of {run}, iteration {iteration}"
    create_markdown_artifact(markdown, key=artifact_key(run, iteration), description=description)
