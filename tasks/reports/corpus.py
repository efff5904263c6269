"""The report on a prepared corpus: what became of its documents, and what its steps cost."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.corpus.steps import IN_ORDER
from tasks.reports.beside import beside
from tasks.reports.draw import GREY, PALETTE, Plot, by, draw, short
from tasks.reports.page import Section, render, write_page
from tasks.reports.percent import percent
from tasks.reports.statement import parameters_of, shared_statement
from warehouse.address import Address
from warehouse.query import query
from warehouse.schemas import Row
from warehouse.store import Store, Table

log = logging.getLogger("selfplay")

# statements in `warehouse/sql/corpus`
QUERIES = (
    "steps",
    "measurements",
    "reasons",
    "pairs",
    "sizes",
    "clusters",
    "spans",
    "families",
    "doubtful",
    "sets",
    "stays",
)


@dataclass(frozen=True)
class Contents:
    """What the report shows: the rows of every query, by its name. `made_at` is the time of the
    report."""

    run: str
    made_at: str
    rows: dict[str, list[Row]]

    def metric(self, step: str, name: str) -> float | None:
        """The value of a step's metric; None if it was not measured."""
        for row in self.rows["measurements"]:
            if row["step"] == step and row["metric"] == name:
                return row["value"]
        return None


def report_corpus(store: Store, prepared: Table) -> Path:
    """Write `<store>/reports/<run>/corpus.html` from the run's tables; return its path.

    An inquiry writes nothing.
    """
    run = prepared.at.run
    if not store.freshness.builds:
        return store.root / "reports" / run / "corpus.html"
    rows = {name: ask(prepared, name) for name in QUERIES}
    contents = Contents(run, time.strftime("%Y-%m-%d %H:%M"), rows)
    page = render(
        "report_corpus.html.jinja",
        c=contents,
        tiles=headline(contents),
        sections=sections(contents),
        pairs_beside=[
            {**row, "sides": beside(row["first_text"], row["second_text"])}
            for row in rows["doubtful"]
        ],
        rows={name: list(map(readable, some)) for name, some in rows.items()},
    )
    path = write_page(store, f"{run}/corpus.html", page)
    log.info("%s: report", path)
    return path


def ask(prepared: Table, name: str) -> list[Row]:
    """The rows of one of `QUERIES`, for the screenings that the prepared corpus went through."""
    screened = [
        Address.parse(table["address"]).label for table in prepared.recipe["params"]["screened"]
    ]
    values = {
        "run": prepared.at.run,
        "screened": screened,
        "parts": list(IN_ORDER),
        "threshold": _threshold(prepared),
    }
    sql = shared_statement(name, folder="corpus")
    return query(prepared.root, sql, parameters_of(sql, values))


def _threshold(prepared: Table) -> float:
    """The Jaccard similarity at which documents become one family."""
    store = Store(prepared.root)
    near = store.find(store.run(prepared.at.run).address("screenings", "near"))
    if near is None:
        return 1.0
    return near.recipe["params"]["threshold"]


def readable(row: Row) -> Row:
    """The row as text, with numbers rounded to as many digits as a reader needs.

    >>> readable({"metric": "cpu_s", "value": 1234.5678})
    {'metric': 'cpu_s', 'value': '1,234.6'}
    >>> readable({"jaccard": 0.81234, "pairs": 3.0})
    {'jaccard': '0.812', 'pairs': '3'}
    """
    return {
        key: _digits(value) if isinstance(value, float) else value for key, value in row.items()
    }


def _digits(value: float) -> str:
    if value.is_integer():
        return f"{value:,.0f}"
    if abs(value) < 10:
        return f"{value:,.3f}"
    return f"{value:,.1f}"


def headline(contents: Contents) -> list[tuple[str, str, str]]:
    """The key figures, as (name, value, remark)."""
    [stays] = contents.rows["stays"]
    read = next((r["rows_in"] for r in contents.rows["steps"] if r["step"] == "read"), 0)
    chars = f"{(stays['chars'] or 0) / 1e6:,.1f} M characters"
    tiles = [("documents kept", f"{stays['documents']:,}", f"of {read:,.0f} read; {chars}")]
    for reason in ("exact_duplicate", "near_duplicate", "contaminated"):
        num = sum(r["documents"] for r in contents.rows["reasons"] if r["reason"] == reason)
        if num:
            tiles.append((reason.replace("_", " "), f"{num:,}", percent(num, read)))
    for step in ("duplicates", "contaminations"):
        recall = contents.metric(step, "canary_recall")
        if recall is not None:
            name = f"canaries found, {step}"
            tiles.append((name, percent(recall, 1), "planted to measure recall"))
    spent = sum(r["cpu_s"] or 0 for r in contents.rows["steps"])
    peak = max((r["peak_memory_mb"] or 0 for r in contents.rows["steps"]), default=0)
    return [*tiles, ("CPU time", f"{spent:,.0f} s", f"peak memory {peak / 1024:.2f} GiB")]


def sections(contents: Contents) -> list[Section]:
    """The figures of the report, in sections."""
    rows = contents.rows
    return [
        Section("Documents", [_reasons(rows["reasons"]), _pairs(rows["pairs"])]),
        Section("Together", [_sizes(rows["sizes"]), _sets(rows["sets"])]),
        Section("Work", [_costs(rows["steps"]), _memory(rows["steps"])]),
    ]


def _reasons(rows: list[Row]) -> Plot:
    if not rows:
        return Plot("reasons", "No document was dropped", "Every document that was read is kept.")
    most = rows[0]
    title = f"Most were dropped as {most['reason'].replace('_', ' ')}: {most['documents']:,}"
    return Plot(
        "reasons", title, "Documents by the first reason for dropping them.", draw(_bars, rows[:12])
    )


def _bars(axes: Any, rows: list[Row]) -> None:
    names = [short(r["reason"].replace("_", " ")) for r in rows][::-1]
    values = [r["documents"] for r in rows][::-1]
    axes.barh(names, values, color=PALETTE[0])
    axes.bar_label(axes.containers[0], [f"{value:,}" for value in values], padding=3, fontsize=9)
    axes.set_xlabel("documents")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _costs(steps: list[Row]) -> Plot:
    spent = {r["step"]: r["cpu_s"] for r in steps if r["cpu_s"] is not None}
    if not spent:
        return Plot("costs", "No step was measured", "")
    slowest = max(spent, key=lambda step: spent[step])
    note = (
        "CPU seconds of each step, its worker processes included, in the attempt that completed it."
    )
    title = (
        f"{slowest} took {percent(spent[slowest], sum(spent.values()))} of"
        f" {sum(spent.values()):,.1f} CPU-s"
    )
    return Plot("costs", title, note, draw(_step_bars, spent, "CPU-s"))


def _memory(steps: list[Row]) -> Plot:
    peaks = {
        r["step"]: r["peak_memory_mb"] / 1024 for r in steps if r["peak_memory_mb"] is not None
    }
    if not peaks:
        return Plot("memory", "No step's memory was measured", "")
    largest = max(peaks, key=lambda step: peaks[step])
    note = (
        "Peak of the largest process of each step. About 0.4 GiB are the program itself, before any"
        " document."
    )
    return Plot(
        "memory",
        f"{largest} used the most: {peaks[largest]:.2f} GiB",
        note,
        draw(_step_bars, peaks, "GiB"),
    )


def _step_bars(axes: Any, values: dict[str, float], unit: str) -> None:
    names = [step.replace("_", " ") for step in values]
    axes.barh(names[::-1], list(values.values())[::-1], color=PALETTE[2])
    axes.set_xlabel(unit)
    axes.grid(axis="y", visible=False)


def _pairs(rows: list[Row]) -> Plot:
    if not rows:
        return Plot(
            "pairs",
            "No two documents were similar",
            "No pair shares a band and half of its shingles.",
        )
    num = sum(r["pairs"] for r in rows)
    note = (
        "Exact Jaccard of every pair that was compared. Pairs well below the threshold were rarely"
        " compared at all."
    )
    return Plot("pairs", f"{num:,} pairs, by their similarity", note, draw(_pair_bars, rows))


def _pair_bars(axes: Any, rows: list[Row]) -> None:
    axes.bar(
        [r["bin"] for r in rows],
        [r["pairs"] for r in rows],
        width=0.018,
        align="edge",
        color=PALETTE[3],
    )
    axes.set_xlim(min(0.5, *(r["bin"] for r in rows)), 1)
    axes.set_xlabel("Jaccard")
    axes.set_ylabel("pairs")
    if max(r["pairs"] for r in rows) > 100:
        axes.set_yscale("log")
    else:
        axes.yaxis.get_major_locator().set_params(integer=True)


def _sizes(rows: list[Row]) -> Plot:
    if not rows:
        return Plot(
            "sizes",
            "No clusters were made",
            "Name an embedding model and a cluster size to have them.",
        )
    num = sum(r["clusters"] for r in rows)
    documents = sum(r["clusters"] * r["size"] for r in rows)
    title = f"{num:,} clusters of {documents / num:.1f} documents on average"
    return Plot("sizes", title, "Clusters by their number of documents.", draw(_size_bars, rows))


def _size_bars(axes: Any, rows: list[Row]) -> None:
    axes.bar(
        [r["size"] for r in rows],
        [r["clusters"] for r in rows],
        color=PALETTE[1],
        edgecolor=GREY,
        linewidth=0.3,
    )
    axes.set_xlabel("documents of a cluster")
    axes.set_ylabel("clusters")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _sets(rows: list[Row]) -> Plot:
    if not rows:
        return Plot(
            "sets",
            "No document sets were made",
            "Give their size to have them: long_context.sets.size=20.",
        )
    tokens = {kind: [r["tokens"] for r in some] for kind, some in by(rows, "shown").items()}
    mean = sum(tokens["members"]) / len(tokens["members"])
    note = (
        "Tokens of all documents of a set: of its members, and where sets were padded, with"
        " distractors."
    )
    return Plot(
        "sets",
        f"{len(tokens['members']):,} sets of {mean:,.0f} tokens on average",
        note,
        draw(_lengths, tokens),
    )


def _lengths(axes: Any, tokens: dict[str, list[int]]) -> None:
    most = max(map(max, tokens.values()))
    for kind, values in sorted(tokens.items()):
        colour = PALETTE[0] if kind == "members" else PALETTE[3]
        axes.hist(values, bins=40, range=(0, most), label=kind, color=colour, alpha=0.8)
    axes.set_xlabel("tokens of a set")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}K")
    axes.set_ylabel("sets")
    axes.yaxis.get_major_locator().set_params(integer=True)
    if len(tokens) > 1:
        axes.legend()
