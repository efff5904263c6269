"""Parts of long articles to ask questions about: one table, a table and the prose beside it, or
several tables.

segments = split_documents(place, documents, splitting=Splitting(max_tokens=2_000), count=count)
parts    = part_articles(place, segments, label="parts")
articles = join_parts(place, parts, label="articles")
samples  = draw_parts(place, parts, task_types=TASK_TYPES, count=64, seed=0)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from corpus_prep.read.tables import as_markdown, begins_table, paragraphs, table_rows
from tasks.stage import Rows, rows_by, stage
from warehouse.schemas import DOCUMENTS, SAMPLES, Document, SegmentRow
from warehouse.store import Table

# suffixes of part ids
PROSE = "prose"
TABLE = "table"
SINGLE = "single_table"
MIXED = "text_and_table"
SEVERAL = "multi_table"
TASK_TYPES = (SINGLE, MIXED, SEVERAL)
# Tables that questions can be asked about: not info boxes and navigation bars.
MIN_ROWS = 4  # including the row of column names
MIN_COLUMNS = 2  # in most rows
MAX_CELL_CHARS = 160  # on average over the cells: longer ones are prose in a frame
MIN_FILLED = 0.5  # share of cells with text
MIN_PROSE_CHARS = 200  # of prose that questions can be asked about


@stage(DOCUMENTS)
def part_articles(segments: Table) -> Rows:
    """Yield every segment as a document that is a piece of its article: tables as Markdown, prose
    without tags. A part unfit for questions is dropped with a reason, but stays in its article.
    Every piece of a table that was cut has the column names."""
    names: list[str] = []
    for row in sorted(
        segments.rows(SegmentRow), key=lambda row: (row["document_id"], row["position"])
    ):
        if row["kind"] == TABLE:
            rows = table_rows(row["text"])
            rows = [names, *rows] if names and not begins_table(row["text"]) else rows
            names = rows[0] if rows else []
            text = as_markdown(rows) if rows else ""
            reason = _unfit(rows)
        else:
            text = paragraphs(row["text"])
            names = []
            reason = "too little prose" if len(text) < MIN_PROSE_CHARS else None
        ids = {
            "document_id": f"{row['document_id']}#{row['position']:04d}-{row['kind']}",
            "source": row["document_id"],
        }
        yield {
            **ids,
            "piece_of": row["document_id"],
            "text": text,
            "num_chars": len(text),
            "dropped_reason": reason,
        }


def _unfit(rows: list[list[str]]) -> str | None:
    """Why a table is unfit for questions; None if it is fit."""
    cells = [cell for row in rows for cell in row]
    widths = Counter(map(len, rows))
    if len(rows) < MIN_ROWS:
        return "too few rows"
    if widths.most_common(1)[0][0] < MIN_COLUMNS:
        return "too few columns"
    if sum(map(bool, cells)) < MIN_FILLED * len(cells):
        return "mostly empty"
    if sum(map(len, cells)) > MAX_CELL_CHARS * len(cells):
        return "prose in a frame"
    return None


@stage(DOCUMENTS)
def join_parts(parts: Table) -> Rows:
    """Yield every article, joined from its parts in order."""
    for article, group in groupby(parts.rows(Document), key=lambda row: row["piece_of"]):
        text = "\n\n".join(row["text"] for row in group if row["text"])
        yield {"document_id": article, "text": text, "source": article, "num_chars": len(text)}


@stage(SAMPLES)
def draw_parts(parts: Table, *, task_types: Sequence[str], count: int, seed: int) -> Rows:
    """Yield `count` draws, with task types in turn. A type uses every article with enough parts
    once before it uses one again.

    "single_table" takes a table, "text_and_table" a table and the usable prose nearest to it,
    "multi_table" two tables of one article. Raises ValueError if no article has enough parts for a
    type.
    """
    articles = rows_by("piece_of", parts.rows(Document))
    able = {
        kind: sorted(name for name, rows in articles.items() if _enough(kind, rows))
        for kind in task_types
    }
    if missing := [kind for kind, names in able.items() if not names]:
        raise ValueError(
            f"no article has the tables that {missing[0]} takes: parts.dropped_reason says what was"
            " left out"
        )
    for i in range(count):
        kind = task_types[i % len(task_types)]
        number = i // len(task_types)
        lap, place = divmod(number, len(able[kind]))
        article = random.Random(f"{seed} {kind} {lap}").sample(able[kind], len(able[kind]))[place]
        drawn = _draw(kind, articles[article], random.Random(f"{seed} {i}"))
        ids = {"sample_id": f"parts-{seed}-{i:05d}", "document_id": article, "task_type": kind}
        yield {**ids, "document_ids": [row["document_id"] for row in drawn]}


def _usable(rows: Sequence[Document], kind: str) -> list[int]:
    """Positions of the usable parts of a kind."""
    return [
        i
        for i, row in enumerate(rows)
        if row["dropped_reason"] is None and row["document_id"].endswith(kind)
    ]


def _enough(task_type: str, rows: Sequence[Document]) -> bool:
    tables = len(_usable(rows, TABLE))
    if task_type == SEVERAL:
        return tables > 1
    return tables > 0 and (task_type == SINGLE or bool(_usable(rows, PROSE)))


def _draw(task_type: str, rows: Sequence[Document], rng: random.Random) -> Iterator[Document]:
    chosen = rng.sample(_usable(rows, TABLE), 2 if task_type == SEVERAL else 1)
    if task_type == MIXED:
        chosen.append(min(_usable(rows, PROSE), key=lambda i: (abs(i - chosen[0]), i)))
    return (rows[i] for i in sorted(chosen))
