"""The report of an iteration: one self-contained HTML file, and the same in Markdown.

Its body is also the body of the run's page in the viewer. It reads published tables and knows no
method: phases, roles, gates and metrics keep their stored names.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.findings.find import Finding, findings
from tasks.findings.rules import SHIPPED
from tasks.reports import checks, information, learning, measures, needles, types
from tasks.reports.about import CONFIG, about
from tasks.reports.data import Source, made_until, open_source, placed
from tasks.reports.draw import Colours, Plot
from tasks.reports.duration import duration
from tasks.reports.examples import Example, examples
from tasks.reports.learning import Tile
from tasks.reports.page import HERE, Section, render, report_file, viewer_page, write_page
from tasks.reports.percent import percent
from warehouse.code import fingerprint
from warehouse.draft import hash_file, hash_json
from warehouse.lake import Lake
from warehouse.query import SQL, replies_view
from warehouse.schemas import Row
from warehouse.stopped import stopped
from warehouse.store import Place, Store

log = logging.getLogger("selfplay")

# statements in `warehouse/sql/report`
QUERIES = (
    "evaluations",
    "needles",
    "task_scores",
    "task_rewards",
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
    """Everything a report shows: the rows of every query, by its name; figures; examples.

    `viewer` is the address of the run's page in the viewer; `stopped` says why the run stopped,
    if it did; `about` says what the run is (`tasks.reports.about`).
    """

    run: str
    iteration: int
    made_at: str
    viewer: str
    rows: dict[str, list[Row]]
    sections: list[Section]
    examples: list[Example]
    stopped: str | None = None
    findings: Sequence[Finding] = ()
    about: Row | None = None


def report(place: Place, iteration: int, rules: Sequence[Path] = ()) -> Path:
    """Write the report of a run up to an iteration; return the HTML file. A figure without data is
    left out.

    `place` is the run's place; `rules` are folders of further rules for findings. Writes
    `<store>/reports/<run>/iter-00N.html` and `.md`, and `latest.html`; inside a Prefect flow run
    the Markdown becomes its artifact `<run>-iter-n`. `latest.html` is the report of the last
    iteration that has one. A report that the same code made from the same tables and settings is
    left as it is, and an inquiry writes nothing.
    """
    store = place.store
    run = place.at.run
    started = time.monotonic()
    path = report_file(store, run, iteration)
    if not store.freshness.builds:
        return path
    mark = f"<!-- made from {made_from(store, run, iteration, rules)} -->\n"
    if path.with_suffix(".md").exists() and _ends_with(path, mark):
        log.info("%s: fresh", path)
    else:
        lake = Lake(store)
        with open_source(store, run, iteration, lake) as source:
            drawn = collect(source, viewer_page(store, run))
            contents = replace(
                drawn,
                stopped=_why_stopped(store, run),
                findings=findings(lake, run, iteration=iteration, folders=rules),
                about=about(store, run),
            )
        html = render_report("report.html.jinja", contents) + mark
        markdown = render_report("report.md.jinja", contents)
        write_page(store, f"{run}/iter-{iteration:03d}.md", markdown)
        write_page(store, f"{run}/iter-{iteration:03d}.html", html)
        log.info("%s: report in %.1f s", path, time.monotonic() - started)
    _write_latest(store, run)
    viewer = viewer_page(store, run)
    served = f"[Viewer]({viewer}) · [report]({viewer}/report?iteration={iteration})"
    links = f"{served} (`selfplay view {run}` serves both), `{path}`\n\n"
    markdown = path.with_suffix(".md").read_text(encoding="utf-8")
    _as_prefect_artifact(run, iteration, links + markdown)
    return path


def made_from(store: Store, run: str, iteration: int, rules: Sequence[Path] = ()) -> str:
    """A hash of what determines a report: code, queries, rules, templates, the tables up to its
    iteration, the run's settings, and why it stopped. People's labels are left out: they do not
    cause a report to be redrawn."""
    files = [*HERE.glob("report*.jinja"), *(SQL / "report").iterdir(), *(SQL / "views").iterdir()]
    files += [file for folder in (SHIPPED, *rules) for file in folder.glob("*.sql")]
    tables = [
        [table.address, table.content_hash, table.recipe["started_at"], table.recipe["seconds"]]
        for table in made_until(store.reached(run), iteration)
    ]
    return hash_json(
        [
            fingerprint(report),
            replies_view(),
            [hash_file(file) for file in sorted(files)],
            tables,
            _why_stopped(store, run),
            about(store, run),
            store.kept(run, CONFIG),
        ]
    )


def _why_stopped(store: Store, run: str) -> str | None:
    cause = stopped(store, run)
    if cause is None:
        return None
    return str(cause)


def report_of_stopped(store: Store, run: str, rules: Sequence[Path] = ()) -> Path | None:
    """Write the report of the iteration in which a run stopped, with the reason, and return its
    file; None if the run did not stop, or made nothing."""
    if _why_stopped(store, run) is None:
        return None
    iterations = [table.at.iteration or 0 for table in store.tables(run)]
    if not iterations:
        return None
    return report(store.run(run), max(iterations), rules)


def redraw(store: Store, run: str, rules: Sequence[Path] = ()) -> None:
    """Redraw the reports of a run whose tables, settings, rules or code have changed; changes to
    people's labels alone redraw none."""
    for iteration in _iterations_drawn(store, run):
        report(store.run(run), iteration, rules)


def _iterations_drawn(store: Store, run: str) -> list[int]:
    """The iterations that have a report, the last one last."""
    files = (store.root / "reports" / run).glob("iter-*.html")
    return sorted(int(file.stem.removeprefix("iter-")) for file in files)


def _write_latest(store: Store, run: str) -> None:
    """Make `latest.html` the report of the last iteration that has one."""
    last = report_file(store, run, _iterations_drawn(store, run)[-1])
    latest = last.with_name("latest.html")
    html = last.read_bytes()
    if not latest.exists() or latest.read_bytes() != html:
        write_page(store, f"{run}/latest.html", html.decode("utf-8"))


def _ends_with(path: Path, mark: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8").endswith(mark)


def collect(source: Source, viewer: str = "") -> Contents:
    """Run all queries and draw all figures. `viewer` is the run's page that links lead to."""
    rows = placed({name: source.rows(name) for name in QUERIES}, source.made)
    return Contents(
        run=source.run,
        iteration=source.iteration,
        made_at=time.strftime("%Y-%m-%d %H:%M"),
        viewer=viewer,
        rows=rows,
        sections=[
            replace(s, plots=[replace(p, rows=ROWS.get(p.name, "")) for p in s.plots])
            for s in _sections(rows, source.iteration, viewer)
        ],
        examples=examples(source),
    )


def _sections(rows: dict[str, list[Row]], iteration: int, viewer: str) -> list[Section]:
    # roles first, so that each keeps its colour in all figures, whatever else a run measures
    colours = Colours(_roles(rows))
    return [
        Section(
            "In short",
            [
                learning.held_out(rows["evaluations"], colours),
                checks.selection_reasons(rows["selection_reasons"], colours),
                _judge(rows, colours),
                learning.task_scores(rows["task_scores"], colours),
                checks.malformed(rows["malformed"], iteration),
                checks.wall_time(rows["wall_times"]),
            ],
        ),
        Section(
            "More on learning",
            [
                learning.held_out_parts(rows["evaluations"], colours),
                *_if_drawn(
                    measures.also_measured(rows["evaluations"]),
                    needles.needles_found(rows["needles"]),
                    learning.task_rewards(rows["task_rewards"], colours),
                ),
                learning.updates(learning.metric_rows(rows["updates"]), colours, viewer),
            ],
            folded=True,
        ),
        Section(
            "Candidate tasks",
            [
                checks.difficulty(rows["difficulty"], rows["selection_reasons"]),
                checks.gates(rows["gates"], colours),
                checks.topic_drift(rows["topic_drift"]),
                information.information(rows["learnable_information"]),
                *_if_drawn(
                    types.difficulty_by_type(rows["task_types"]),
                    types.kept_by_type(rows["task_types"]),
                ),
            ],
            folded=True,
        ),
        Section(
            "Replies",
            [
                learning.answer_lengths(rows["answer_lengths"], colours),
                learning.searches(rows["searches"], colours),
                *_if_drawn(types.disagreements(rows["disagreements"])),
            ],
            folded=True,
        ),
    ]


def _roles(rows: dict[str, list[Row]]) -> list[str]:
    """The trained roles, then the phases, each in order of their names."""
    trained = sorted({row["role"] for row in rows["updates"]})
    phases = sorted({row["phase"] for row in rows["task_scores"] if row["phase"]})
    return [*trained, *phases]


def _judge(rows: dict[str, list[Row]], colours: Colours) -> Plot:
    """The plot of verdicts whose truth is known, or else that of marks."""
    verdicts = checks.judge(rows["judge"], colours)
    if verdicts.svg:
        return verdicts
    marks = measures.judge_monitor(rows["evaluations"])
    if marks.svg:
        return marks
    return verdicts


# figure -> the page of the viewer that shows its rows
ROWS = {
    "held-out": "table?name=evaluations",
    "held-out-parts": "table?name=evaluations",
    "also-measured": "table?name=evaluations",
    "task-scores": "rollouts?outcome=rewarded&order=best",
    "task-rewards": "rollouts?outcome=rewarded&order=worst",
    "selection": "candidates",
    "difficulty": "candidates",
    "gates": "candidates?of=gates",
    "malformed": "rollouts?outcome=malformed",
    "updates": "updates",
}


def _if_drawn(*plots: Plot) -> list[Plot]:
    """The plots that were drawn; only some runs have data for these."""
    return [plot for plot in plots if plot.svg]


def headline(contents: Contents) -> list[Tile]:
    """The key figures, as (name, value, remark)."""
    return [*learning.held_out_tiles(contents.rows["evaluations"]), *iteration_tiles(contents)]


def iteration_tiles(contents: Contents) -> list[Tile]:
    """The key figures of the report's own iteration, as (name, value, remark)."""
    rows = {
        name: [r for r in some if r.get("iteration") == contents.iteration]
        for name, some in contents.rows.items()
    }
    tiles = []
    if reasons := rows["selection_reasons"]:
        num = sum(r["n"] for r in reasons)
        num_kept = sum(r["n"] for r in reasons if r["reason"] == "kept")
        tiles.append(("tasks kept", f"{num_kept:,}", f"of {num:,} candidates"))
    if outcomes := rows["malformed"]:
        num = sum(r["n"] for r in outcomes)
        num_bad = sum(r["n"] for r in outcomes if r["reason"] is not None)
        tiles.append(("malformed replies", percent(num_bad, num), f"{num_bad:,} of {num:,}"))
    for row in rows["judge"]:
        if row["n"]:
            num_wrong = row["n"] - row["num_right"]
            remark = f"{num_wrong:,} of {row['n']:,} verdicts"
            error = percent(num_wrong, row["n"])
            tiles.append((f"judge error, {row['truth_of']}", error, remark))
    for row in rows["wall_times"]:
        share = percent(checks.neither_s(row), row["wall_s"])
        remark = f"{share} neither generation nor update"
        tiles.append(("wall time", duration(row["wall_s"]), remark))
    return tiles


def render_report(template: str, contents: Contents) -> str:
    """The report as a standalone page."""
    return render(
        template,
        c=contents,
        rows=contents.rows,
        sections=contents.sections,
        viewer=contents.viewer,
        tiles=headline(contents),
    )


def render_findings(found: Sequence[Finding], viewer: str, iteration: int | None) -> str:
    """Findings as a part of the run's page in the viewer; empty if there are none."""
    return render(
        "report_findings.html.jinja",
        findings=found,
        viewer=viewer,
        iteration=iteration,
        in_page=True,
    )


def render_body(contents: Contents, longest: int | None = None) -> str:
    """The report's body, as a part of the run's page in the viewer.

    Leaves out figures that have no data, tiles of held-out scores, which that page shows above, and
    all but the first `longest` characters of a text.
    """
    drawn = [replace(s, plots=_if_drawn(*s.plots)) for s in contents.sections]
    return render(
        "report_body.html.jinja",
        c=contents,
        rows=contents.rows,
        sections=[section for section in drawn if section.plots],
        viewer=contents.viewer,
        tiles=iteration_tiles(contents),
        longest=longest,
    )


def artifact_key(run: str, iteration: int) -> str:
    """A key that Prefect accepts: lower-case letters, digits and dashes.

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
