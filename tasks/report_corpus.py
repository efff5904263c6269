"""The report of a prepared corpus: what became of its documents, and what every step did and cost."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.report_draw import GREY, PALETTE, Plot, draw, percent, short
from tasks.report_page import Section, render, write_page
from warehouse.query import query
from warehouse.store import Place

log = logging.getLogger("selfplay")

Row = dict[str, Any]
QUERIES = {
    "measurements": "select part, metric, value from measurements where run = $run order by part, metric",
    "reasons": """
        select part, reason, count(*) as documents from (
            select 'read' as part, dropped_reason as reason from documents where run = $run and label is null
            union all
            select label, reason from screenings where run = $run
        )
        where reason is not null group by all order by documents desc
    """,
    "pairs": """
        select least(floor(jaccard * 50) / 50, 0.98) as bin, count(*) as pairs
        from duplicates where run = $run group by bin order by bin
    """,
    "sizes": """
        select num_documents as size, count(*) as clusters from clusters where run = $run group by size order by size
    """,
    "clusters": """
        select cluster, num_documents, similarity, title, array_to_string(keywords, ', ') as keywords
        from clusters where run = $run order by num_documents desc, cluster limit 40
    """,
    "spans": """
        select benchmark, passage, document_id, rule, share, removes, text
        from contaminations where run = $run order by removes desc, share desc, document_id, start limit 40
    """,
    "families": """
        select first_id, second_id, jaccard
        from duplicates where run = $run order by jaccard desc, first, second limit 40
    """,
    "stays": """
        select count(*) as documents, sum(num_chars) as chars from documents where run = $run and label = 'prepared'
    """,
}


@dataclass(frozen=True)
class Contents:
    run: str
    made_at: str
    rows: dict[str, list[Row]]

    def metric(self, step: str, name: str) -> float | None:
        found = (r["value"] for r in self.rows["measurements"] if (r["part"], r["metric"]) == (step, name))
        return next(found, None)


def report_corpus(place: Place) -> Path:
    """Write `<store>/reports/<run>/corpus.html` from the run's tables; returns its path. An inquiry writes nothing."""
    run, store = place.parts[0], place.store
    if not store.freshness.works:
        return store.root / "reports" / run / "corpus.html"
    rows = {name: query(store.root, sql, {"run": run}) for name, sql in QUERIES.items()}
    contents = Contents(run, time.strftime("%Y-%m-%d %H:%M"), rows)
    page = render("report_corpus.html.jinja", c=contents, tiles=headline(contents), sections=sections(contents), **rows)
    path = write_page(store, f"{run}/corpus.html", page)
    log.info("%s: report", path)
    return path


def headline(contents: Contents) -> list[tuple[str, str, str]]:
    """What to know first, as (name, value, remark)."""
    [stays] = contents.rows["stays"]
    read = contents.metric("read", "rows_in") or 0
    chars = f"{(stays['chars'] or 0) / 1e6:,.1f} M characters"
    tiles = [("documents that stay", f"{stays['documents']:,}", f"of {read:,.0f} read; {chars}")]
    for reason in ("exact_duplicate", "near_duplicate", "contaminated"):
        num = sum(r["documents"] for r in contents.rows["reasons"] if r["reason"] == reason)
        if num:
            tiles.append((reason.replace("_", " "), f"{num:,}", percent(num, read)))
    for step in ("duplicates", "contaminations"):
        if (found := contents.metric(step, "canary_recall")) is not None:
            tiles.append((f"canaries found, {step}", percent(found, 1), "known ones, put in to be found"))
    spent = sum(r["value"] for r in contents.rows["measurements"] if r["metric"] == "cpu_s")
    peak = max((r["value"] for r in contents.rows["measurements"] if r["metric"] == "peak_memory_mb"), default=0)
    return [*tiles, ("CPU time", f"{spent:,.0f} s", f"peak memory {peak / 1024:.2f} GiB")]


def sections(contents: Contents) -> list[Section]:
    rows = contents.rows
    return [
        Section("Documents", [_reasons(rows["reasons"]), _costs(rows["measurements"])]),
        Section("Pairs and clusters", [_pairs(rows["pairs"]), _sizes(rows["sizes"])]),
    ]


def _reasons(rows: list[Row]) -> Plot:
    if not rows:
        return Plot("reasons", "No document was dropped", "Every document that was read stays.")
    most = rows[0]
    title = f"Most were dropped as {most['reason'].replace('_', ' ')}: {most['documents']:,}"
    return Plot("reasons", title, "Documents by the first reason why they do not stay.", draw(_bars, rows[:12]))


def _bars(axes: Any, rows: list[Row]) -> None:
    names = [short(r["reason"].replace("_", " ")) for r in rows][::-1]
    values = [r["documents"] for r in rows][::-1]
    axes.barh(names, values, color=PALETTE[0])
    axes.bar_label(axes.containers[0], [f"{value:,}" for value in values], padding=3, fontsize=9)
    axes.set_xlabel("documents")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _costs(rows: list[Row]) -> Plot:
    spent = {r["part"]: r["value"] for r in rows if r["metric"] == "cpu_s"}
    if not spent:
        return Plot("costs", "No step was measured", "")
    slowest = max(spent, key=lambda step: spent[step])
    note = "CPU seconds of each step, its worker processes included, in the attempt that completed it."
    return Plot("costs", f"{slowest} cost the most: {spent[slowest]:,.1f} CPU-s", note, draw(_cost_bars, spent))


def _cost_bars(axes: Any, spent: dict[str, float]) -> None:
    axes.barh(list(spent)[::-1], list(spent.values())[::-1], color=PALETTE[2])
    axes.set_xlabel("CPU-s")
    axes.grid(axis="y", visible=False)


def _pairs(rows: list[Row]) -> Plot:
    if not rows:
        return Plot("pairs", "No two documents were similar", "No pair shares a band and half of its shingles.")
    num = sum(r["pairs"] for r in rows)
    note = "Exact Jaccard of every pair that was compared. All are stored: another threshold is a query."
    return Plot("pairs", f"{num:,} pairs, by their similarity", note, draw(_pair_bars, rows))


def _pair_bars(axes: Any, rows: list[Row]) -> None:
    axes.bar([r["bin"] for r in rows], [r["pairs"] for r in rows], width=0.018, align="edge", color=PALETTE[3])
    axes.set_xlabel("Jaccard")
    axes.set_ylabel("pairs")
    if max(r["pairs"] for r in rows) > 100:
        axes.set_yscale("log")


def _sizes(rows: list[Row]) -> Plot:
    if not rows:
        return Plot("sizes", "No clusters were made", "Name an embedding model and a cluster size to have them.")
    num, documents = sum(r["clusters"] for r in rows), sum(r["clusters"] * r["size"] for r in rows)
    title = f"{num:,} clusters of {documents / num:.1f} documents on average"
    return Plot("sizes", title, "Clusters by their number of documents.", draw(_size_bars, rows))


def _size_bars(axes: Any, rows: list[Row]) -> None:
    axes.bar([r["size"] for r in rows], [r["clusters"] for r in rows], color=PALETTE[1], edgecolor=GREY, linewidth=0.3)
    axes.set_xlabel("documents of a cluster")
    axes.set_ylabel("clusters")
