"""Read tables of articles as rows of cells: Markdown, and HTML with broken or unclosed tags."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_HTML_ROW = re.compile(r"<tr\b[^>]*>|</tr>", re.IGNORECASE)
# some corpora write <Td_colspan="2">
_HTML_CELL = re.compile(r"<t[hd]((?:[\s_][^>]*)?)>", re.IGNORECASE)
_SPAN = re.compile(r"(row|col)span\s*=\s*[\"']?(\d{1,2})", re.IGNORECASE)
_INNER = re.compile(r"<table\b.*?</table>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BAR = re.compile(r"(?<!\\)\|")
_DASHES = re.compile(r"[\s|:-]*-[\s|:-]*")


def table_rows(text: str) -> list[list[str]]:
    """The cells of every row that has any text, column names first.

    A cell that spans rows is repeated in each; one that spans columns is followed by empty cells. A
    table within a cell is left out.

    >>> table_rows("| City | Year |\\n|---|---|\\n| Ulm | 1902 |")
    [['City', 'Year'], ['Ulm', '1902']]
    >>> table_rows("<Table> <Tr> <Th_colspan='2'> City </Th> <Td> Ulm &amp; Bonn <Tr> <Td> 1902")
    [['City', '', 'Ulm & Bonn'], ['1902']]
    >>> table_rows("<table><tr><td rowspan=2>A<td>1<tr><td>2</table>")
    [['A', '1'], ['A', '2']]
    """
    if "<" in text and _HTML_ROW.search(text):
        body = text
        if text.lstrip().lower().startswith("<table"):
            body = text[text.index(">") + 1 :]
        rows = _spread(_HTML_CELL.split(row)[1:] for row in _HTML_ROW.split(_INNER.sub(" ", body)))
    else:
        lines = (line.strip() for line in text.splitlines())
        kept = (line for line in lines if line and not _DASHES.fullmatch(line))
        rows = [
            [plain(cell) for cell in _BAR.split(line.removeprefix("|").removesuffix("|"))]
            for line in kept
        ]
    return [row for row in rows if any(row)]


def _spread(split_rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows of cells, from rows of attributes and texts in alternation."""
    rows: list[list[str]] = []
    below: dict[int, tuple[str, int]] = {}  # column -> text that spans rows, rows left
    for parts in filter(None, split_rows):
        row: list[str] = []
        still: dict[int, tuple[str, int]] = {}
        cells = iter(zip(parts[::2], parts[1::2], strict=True))
        while True:
            if len(row) in below:
                text, left = below.pop(len(row))
                if left > 1:
                    still[len(row)] = (text, left - 1)
                row.append(text)
                continue
            if (cell := next(cells, None)) is None:
                break
            span = {k.lower(): int(n) for k, n in _SPAN.findall(cell[0])}
            text = plain(cell[1])
            if span.get("row", 1) > 1:
                still[len(row)] = (text, span["row"] - 1)
            row += [text, *[""] * (span.get("col", 1) - 1)]
        rows.append(row)
        below = still
    return rows


def begins_table(text: str) -> bool:
    """Whether a table's text starts at the table's beginning, not in its middle.

    >>> begins_table("<Table> <Tr> <Td> 7"), begins_table("| a |\\n|---|\\n| 7 |")
    (True, True)
    >>> begins_table("| 7 |")
    False
    """
    if text.lstrip().lower().startswith("<table"):
        return True
    lines = text.strip().splitlines()
    return len(lines) > 1 and bool(_DASHES.fullmatch(lines[1]))


def plain(text: str) -> str:
    """Text without tags, entities decoded, and every run of blanks collapsed to one.

    >>> plain("<P> 40 &deg; N <B>or</B>\\n so </P>")
    '40 ° N or so'
    """
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def paragraphs(text: str) -> str:
    """Prose without tags, with a blank line between paragraphs and headings.

    >>> paragraphs("<H2> History </H2> <P> It began. </P> <P> It ended. </P>")
    'History\\n\\nIt began.\\n\\nIt ended.'
    """
    apart = re.sub(r"</?(?:p|h[1-6]|ul|ol|dl|li|br)\b[^<>]*>", "\n\n", text, flags=re.IGNORECASE)
    pieces = (plain(piece) for piece in re.split(r"\n\s*\n", apart))
    return "\n\n".join(piece for piece in pieces if piece)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table, the first as its header; short rows are padded with empty cells.

    >>> print(as_markdown([["City", "Year"], ["Ulm | Neu-Ulm"]]))
    | City | Year |
    | --- | --- |
    | Ulm / Neu-Ulm |  |
    """
    width = max(map(len, rows))
    lines = [[cell.replace("|", "/") for cell in row] + [""] * (width - len(row)) for row in rows]
    lines.insert(1, ["---"] * width)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
