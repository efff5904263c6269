"""Split long texts into stretches of prose and tables, each within a number of tokens.

Tables may be Markdown (rows with bars, dashes in the second row) or HTML (everything from `<table>`
to `</table>`). Nothing is lost but the blanks between stretches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.corpus import Shard
from warehouse.schemas.corpus import SEGMENTS

HTML_TABLE = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)
MARKDOWN_TABLE = re.compile(
    r"""^[^|\n]*\|.*\n                                                   # a row of names
        [ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t:]*(?:-+[ \t:]*)?)+\n  # dashes below each
        (?:.*\|.*(?:\n|\Z))*                                           # rows""",
    re.MULTILINE | re.VERBOSE,
)
PROSE_CUTS = (r"\n\s*\n|(?=<[Pp]>)", r"\n", r"(?<=[.!?])\s+|(?<=[。！？])", r"\s+", r"(?<=.)(?=.)")
TABLE_CUTS = (r"\n|(?<=</tr>)|(?<=</Tr>)|(?<=</TR>)", r"\s+", r"(?<=.)(?=.)")

Count = Callable[[str], int]


class Splitting(BaseModel):
    """Which documents are split, and how long the parts are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_tokens: PositiveInt = Field(description="maximum number of tokens of a part")
    min_chars: int = Field(default=0, ge=0, description="shorter documents are left out")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a document: its kind, its text without blanks around it, and its length in
    tokens."""

    kind: Literal["prose", "table"]
    text: str
    num_tokens: int


def write_segments(shard: Shard, splitting: Splitting, count: Count) -> None:
    """Map step: write rows of `segments` for a shard's documents.

    Documents of fewer than `splitting.min_chars` characters are left out. `count` returns the
    number of tokens of a text.
    """
    with pq.ParquetWriter(shard.out, SEGMENTS.arrow, compression="zstd") as writer:
        for _, batch in shard.batches(["document_id", "text"]):
            rows = [
                {"document_id": document_id, "position": position, **asdict(segment)}
                for document_id, text in zip(
                    *(batch[name].to_pylist() for name in ("document_id", "text")), strict=True
                )
                if len(text) >= splitting.min_chars
                for position, segment in enumerate(segments(text, splitting.max_tokens, count))
            ]
            writer.write_table(pa.Table.from_pylist(rows, SEGMENTS.arrow))


def segments(text: str, max_tokens: int, count: Count) -> Iterator[Segment]:
    """The stretches of a text, in order.

    One that is too long is cut between paragraphs or rows; if that is not enough, between lines,
    then sentences, words, and finally characters.
    """
    for kind, stretch in _stretches(text):
        for part in _fitting(
            stretch, max_tokens, count, TABLE_CUTS if kind == "table" else PROSE_CUTS
        ):
            yield Segment(kind, part, count(part))


def _stretches(text: str) -> Iterator[tuple[Literal["prose", "table"], str]]:
    start = 0
    for begin, end in _tables(text):
        if text[start:begin].strip():
            yield "prose", text[start:begin].strip()
        yield "table", text[begin:end].strip()
        start = end
    if text[start:].strip():
        yield "prose", text[start:].strip()


def _tables(text: str) -> list[tuple[int, int]]:
    """Where tables begin and end, in order and without overlap.

    A nested table belongs to the outer one.
    """
    spans = []
    depth = 0
    begin = 0
    for tag in HTML_TABLE.finditer(text):
        if not tag[1]:
            if depth == 0:
                begin = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                spans.append((begin, tag.end()))
    spans += [table.span() for table in MARKDOWN_TABLE.finditer(text)]
    apart: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if not apart or begin >= apart[-1][1]:
            apart.append((begin, end))
    return apart


def _fitting(text: str, max_tokens: int, count: Count, cuts: tuple[str, ...]) -> Iterator[str]:
    """Parts within the limit, each as long as possible.

    They are cut at the first kind of boundary that suffices.
    """
    if count(text) <= max_tokens or not cuts:
        yield text
        return
    places = [
        0,
        *(cut.end() for cut in re.finditer(cuts[0], text) if 0 < cut.end() < len(text)),
        len(text),
    ]
    start = 0
    while start < len(places) - 1:
        end = _furthest(text, places, start, max_tokens, count)
        part = text[places[start] : places[end]].strip()
        if part:
            yield from _fitting(part, max_tokens, count, cuts[1:] if end == start + 1 else ())
        start = end


def _furthest(text: str, places: list[int], start: int, max_tokens: int, count: Count) -> int:
    """The last place at which the text from `start` is within the limit.

    If there is none, the next place.
    """
    low = start + 1
    step = 1
    while (
        low + step < len(places)
        and count(text[places[start] : places[low + step]].strip()) <= max_tokens
    ):
        low = low + step
        step = step * 2
    high = min(low + step, len(places))
    while low + 1 < high:
        middle = (low + high) // 2
        fits = count(text[places[start] : places[middle]].strip()) <= max_tokens
        if fits:
            low = middle
        else:
            high = middle
    return low
