"""Raw files to document rows. Every file and row comes out; one that cannot be used carries the reason why."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corpus_prep.read.formats import SUPPORTED, UTF16_AND_32_MARKS, Columns, DroppedReason, Found, found_in, printable
from corpus_prep.read.hub import found_in_dataset, is_dataset
from corpus_prep.read.seen import Seen

ROWS_BETWEEN_PROGRESS = 1_000
MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document. Key: document_id, unique among all rows of a corpus, dropped ones included.

    source: the corpus' own source column, else the path (with `:line` or `:row`, counted from 1).
    num_chars: characters of the text as found; None where it could not be read.
    dropped_reason: None for a usable document. A dropped row has an empty text, save duplicate_id, which keeps its own.
    """

    document_id: str
    title: str
    text: str
    source: str = ""
    licence: str | None = None
    num_chars: int | None = None
    language: str | None = None
    score: float | None = None
    dropped_reason: DroppedReason | None = None


@dataclass
class CorpusCounts:
    """Rows so far: kept, and dropped by reason. Files: found and begun."""

    num_files: int = 0
    num_files_begun: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def num_rows(self) -> int:
        return self.kept + self.dropped.total()


def read_corpus(
    path: str | Path,
    *,
    max_chars: int = 2_000_000,
    columns: Columns | None = None,
    counts: CorpusCounts | None = None,
    progress: Callable[[CorpusCounts], None] | None = None,
) -> Iterator[DocumentRow]:
    """Stream the documents of a file, of a folder (recursive, sorted), or of a Hugging Face dataset (`hf:...`).

    Files and folders whose names begin with a dot are left out; any other file of a type not in SUPPORTED gives a row
    `unsupported_type`. Ids that are not given come from the path below the corpus, so they survive a move of the whole.
    `counts` is filled while reading; `progress` is called with it every 1,000 rows and at the end.

    Raises:
        ValueError: at once for a missing path or nothing of a supported type; at the end if no document was usable.
    """
    counts = CorpusCounts() if counts is None else counts
    rows = _Rows(columns or Columns(), max_chars)
    if is_dataset(str(path)):
        counts.num_files = counts.num_files_begun = 1
        found = found_in_dataset(str(path))
    else:
        root = Path(path)
        files = _corpus_files(root)
        counts.num_files = len(files)
        found = _found_in_files(root, files, rows, counts)
    return rows.counted(found, str(path), counts, progress or (lambda _: None))


def _corpus_files(root: Path) -> list[Path]:
    if not root.exists():
        raise ValueError(f"corpus {root} does not exist. Give a file or a folder of {', '.join(SUPPORTED)} files.")
    files = sorted(_walk(root)) if root.is_dir() else [root]
    if not any(file.name.lower().endswith(SUPPORTED) for file in files):
        found = f"has {len(files)} file(s), none" if root.is_dir() else "is not"
        raise ValueError(f"corpus {root} {found} of a supported type. Convert it to one of {', '.join(SUPPORTED)}.")
    return files


def _walk(root: Path) -> Iterator[Path]:
    """Files below root, links to folders followed once."""
    visited = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        subfolders[:] = [] if real in visited else [name for name in subfolders if not name.startswith(".")]
        if real not in visited:
            yield from (Path(folder, name) for name in names if not name.startswith("."))
        visited.add(real)


def _found_in_files(root: Path, files: list[Path], rows: "_Rows", counts: CorpusCounts) -> Iterator[Found]:
    for file in files:
        counts.num_files_begun += 1
        place = printable(file.relative_to(root) if root.is_dir() else file.name)
        yield from found_in(file, place, rows.columns, rows.max_chars)


class _Rows:
    """Makes rows of what was found, under ids that no two of them share."""

    def __init__(self, columns: Columns, max_chars: int) -> None:
        self.columns, self.max_chars = columns, max_chars
        self._seen = Seen()

    def counted(
        self, things: Iterator[Found], path: str, counts: CorpusCounts, progress: Callable[[CorpusCounts], None]
    ) -> Iterator[DocumentRow]:
        first_dropped = ""
        for found in things:
            row = self._row(found)
            if row.dropped_reason is None:
                counts.kept += 1
            else:
                counts.dropped[row.dropped_reason] += 1
                first_dropped = first_dropped or f"{found.source}: {row.dropped_reason}"
            yield row
            if counts.num_rows % ROWS_BETWEEN_PROGRESS == 0:
                progress(counts)
        progress(counts)
        if counts.kept == 0:
            reasons = ", ".join(f"{reason} {num}" for reason, num in sorted(counts.dropped.items())) or "no rows at all"
            raise ValueError(
                f"no usable document in corpus {path} ({reasons}; first: {first_dropped or path}). Give UTF-8 .txt or "
                f".md files, or JSONL or Parquet with text in a column named {', '.join(self.columns.text)}."
            )

    def _row(self, found: Found) -> DocumentRow:
        fields, columns = found.fields, self.columns
        text, num_chars, reason = self._text_of(found)
        title, text = self._title_and_text(fields, text)
        document_id = _plain(_first(fields, columns.id)) or found.place
        if document_id in self._seen:
            reason = reason or "duplicate_id"
            document_id = f"{document_id}#{found.place}"
            while document_id in self._seen:
                document_id += "#"
        self._seen.add(document_id)
        source = _plain(_first(fields, columns.source)) or found.source
        licence = _plain(_first(fields, columns.licence)) or None
        score = _number(_first(fields, columns.score))
        return DocumentRow(document_id, title, text, source, licence, num_chars, score=score, dropped_reason=reason)

    def _text_of(self, found: Found) -> tuple[str, int | None, DroppedReason | None]:
        """The text, its length as found, and why it cannot be used."""
        value = _first(found.fields, self.columns.text)
        has_column = any(name in found.fields for name in self.columns.text)
        if found.reason is not None:
            return "", None, found.reason
        if value is None and has_column:
            return "", 0, "empty"
        if not isinstance(value, str | bytes):
            return "", None, "no_text"
        content = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        if content.startswith(UTF16_AND_32_MARKS):
            return "", None, "encoding"
        if b"\0" in content:
            return "", None, "binary"
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "", None, "encoding"
        if not text.strip():
            return "", len(text), "empty"
        return (text, len(text), None) if len(text) <= self.max_chars else ("", len(text), "too_long")

    def _title_and_text(self, fields: Mapping[str, object], text: str) -> tuple[str, str]:
        """The given title; else a quoted first line of `contents` (taken out of the text, as in Pyserini's and
        FlashRAG's Wikipedia dumps), a markdown heading, the file's name, or the beginning of the first line."""
        if title := _plain(_first(fields, self.columns.title)).strip():
            return title, text
        first, _, rest = text.lstrip().partition("\n")
        first = first.strip()
        if "contents" in fields and "text" not in fields and rest.strip() and re.fullmatch(r'".+"', first):
            return first[1:-1], rest
        if heading := re.match(r"#{1,6}\s+(.*\S)", first):
            return re.sub(r"\s+#+$", "", heading[1]), text
        return str(fields.get("file_name") or first[:MAX_TITLE_CHARS]), text


def _first(fields: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _number(value: object) -> float | None:
    """A finite number, or None: a score of another kind is no score."""
    if isinstance(value, str | bytes):
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _plain(value: object) -> str:
    """A short value as text that can be stored; no value, or one that is no text and no whole number, is ''."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str | int):
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")
