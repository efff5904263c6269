"""Turn raw files into document rows.

Every file or record yields a row; one that cannot be used carries the reason.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corpus_prep.read.fields import first_value, to_date, to_number, to_text
from corpus_prep.read.files import (
    SUPPORTED,
    UTF16_AND_32_MARKS,
    Columns,
    DroppedReason,
    Record,
    is_supported,
    printable,
    walk,
)
from corpus_prep.read.formats import records_in
from corpus_prep.read.hub import is_dataset, records_in_dataset
from corpus_prep.read.pieces import cut
from corpus_prep.read.repair import is_binary, repaired
from corpus_prep.read.seen import TextSet
from corpus_prep.read.titles import opening

ROWS_BETWEEN_PROGRESS = 1_000


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document. Key: document_id, unique among all rows of a corpus, including dropped ones.

    source: the corpus's own source column, else the path (with `:line` or `:row`, counted from 1).
    num_chars: characters of the text as found; None if it could not be read.
    dropped_reason: None for a usable document. A dropped row has an empty text, except for
    duplicate_id.
    date: ISO 8601. piece_of: the id of the document that this is a piece of; a piece's own id ends
    in `#2of7`.
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
    date: str | None = None
    piece_of: str | None = None


@dataclass
class CorpusCounts:
    """Rows so far: kept, and dropped by reason.

    Files: found and begun. Documents: cut into pieces, repaired (invisible characters removed), and
    renamed because another document has their id.
    """

    num_files: int = 0
    num_files_begun: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    repaired: int = 0
    renamed: int = 0

    @property
    def num_rows(self) -> int:
        """Rows so far, kept or dropped."""
        return self.kept + self.dropped.total()


def read_corpus(
    path: str | Path,
    *,
    max_chars: int = 10_000_000,
    piece_chars: int | None = None,
    columns: Columns | None = None,
    counts: CorpusCounts | None = None,
    progress: Callable[[CorpusCounts], None] | None = None,
) -> Iterator[DocumentRow]:
    """Stream the documents of a file, of a folder, or of a Hugging Face dataset (`hf:...`).

    A folder is read recursively, in sorted order.

    Skips files and folders whose names begin with a dot; any other file of a type not in SUPPORTED
    yields a row `unsupported_type`. A document without an id is named by its path below the corpus,
    so ids survive a move of the corpus. Documents that share an id but not a text are all kept, the
    later ones as `ID#PLACE`. A document of more than `max_chars` is dropped; one of more than
    `piece_chars` is cut into pieces, each a document. `counts` is filled while reading; `progress`
    is called with it every 1,000 rows and at the end.

    Raises:
        ValueError: at once for a missing path or one without supported files; at the end if no
        document was usable.
    """
    if counts is None:
        counts = CorpusCounts()
    rows = _Rows(columns or Columns(), max_chars, piece_chars, counts)
    if is_dataset(str(path)):
        counts.num_files = counts.num_files_begun = 1
        records = records_in_dataset(str(path))
    else:
        root = Path(path)
        files = _corpus_files(root)
        counts.num_files = len(files)
        records = _found_in_files(root, files, rows, counts)
    return rows.counted(records, str(path), progress or (lambda _: None))


def _corpus_files(root: Path) -> list[Path]:
    if not root.exists():
        raise ValueError(
            f"corpus {root} does not exist. Give a file or a folder of {', '.join(SUPPORTED)}"
            " files."
        )
    files = sorted(walk(root)) if root.is_dir() else [root]
    if not any(is_supported(file.name) for file in files):
        problem = f"has {len(files)} file(s), none" if root.is_dir() else "is not"
        raise ValueError(
            f"corpus {root} {problem} of a supported type. Convert it to one of"
            f" {', '.join(SUPPORTED)}."
        )
    return files


def _found_in_files(
    root: Path, files: list[Path], rows: "_Rows", counts: CorpusCounts
) -> Iterator[Record]:
    for file in files:
        counts.num_files_begun += 1
        place = printable(file.relative_to(root) if root.is_dir() else file.name)
        yield from records_in(file, place, rows.columns, rows.max_chars)


class _Rows:
    """Makes rows with unique ids from the records of files."""

    def __init__(
        self, columns: Columns, max_chars: int, piece_chars: int | None, counts: CorpusCounts
    ) -> None:
        self.columns = columns
        self.max_chars = max_chars
        self.piece_chars = piece_chars
        self.counts = counts
        self._ids = TextSet()
        self._documents = TextSet()

    def counted(
        self, records: Iterator[Record], path: str, progress: Callable[[CorpusCounts], None]
    ) -> Iterator[DocumentRow]:
        counts = self.counts
        first_dropped = ""
        for record in records:
            for row in self._pieces(self._row(record)):
                if row.dropped_reason is None:
                    counts.kept += 1
                else:
                    counts.dropped[row.dropped_reason] += 1
                    first_dropped = first_dropped or f"{record.source}: {row.dropped_reason}"
                yield row
                if counts.num_rows % ROWS_BETWEEN_PROGRESS == 0:
                    progress(counts)
        progress(counts)
        if counts.kept == 0:
            reasons = (
                ", ".join(f"{reason} {num}" for reason, num in sorted(counts.dropped.items()))
                or "no rows at all"
            )
            raise ValueError(
                f"no usable document in corpus {path} ({reasons}; first: {first_dropped or path})."
                " Give UTF-8 .txt or .md files, or JSONL or Parquet with text in a column named"
                f" {', '.join(self.columns.text)}."
            )

    def _row(self, record: Record) -> DocumentRow:
        fields = record.fields
        columns = self.columns
        text, num_chars, reason = self._text_of(record)
        title, text = self._title_and_text(fields, text)
        given_id = to_text(first_value(fields, columns.id)) or record.place
        document_id = self._unique(given_id, record.place)
        if document_id != given_id:
            is_same = reason is None and f"{given_id} {hash(text)}" in self._documents
            if is_same:
                reason = "duplicate_id"
            self.counts.renamed += reason is None
        if reason is None:
            self._documents.add(f"{given_id} {hash(text)}")
        return DocumentRow(
            document_id,
            title,
            text,
            source=to_text(first_value(fields, columns.source)) or record.source,
            licence=to_text(first_value(fields, columns.licence)) or None,
            num_chars=num_chars,
            score=to_number(first_value(fields, columns.score)),
            dropped_reason=reason,
            date=to_date(first_value(fields, columns.date)),
        )

    def _unique(self, document_id: str, place: str) -> str:
        if document_id in self._ids:
            document_id = f"{document_id}#{place}"
            while document_id in self._ids:
                document_id += "#"
        self._ids.add(document_id)
        return document_id

    def _pieces(self, row: DocumentRow) -> Iterator[DocumentRow]:
        if (
            row.dropped_reason is not None
            or self.piece_chars is None
            or len(row.text) <= self.piece_chars
        ):
            yield row
            return
        self.counts.cut += 1
        texts = list(cut(row.text, self.piece_chars))
        whole = row.document_id
        for number, text in enumerate(texts, 1):
            own = self._unique(f"{whole}#{number}of{len(texts)}", "piece")
            piece = dataclasses.replace(
                row, document_id=own, text=text, num_chars=len(text), piece_of=whole
            )
            if not text.strip():
                piece = dataclasses.replace(piece, text="", dropped_reason="empty")
            yield piece

    def _text_of(self, record: Record) -> tuple[str, int | None, DroppedReason | None]:
        """The text, its length as found, and why it cannot be used, or None."""
        value = first_value(record.fields, self.columns.text)
        has_column = any(name in record.fields for name in self.columns.text)
        if record.reason is not None:
            return "", None, record.reason
        if value is None and has_column:
            return "", 0, "empty"
        if not isinstance(value, str | bytes):
            return "", None, "no_text"
        content = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        if content.startswith(UTF16_AND_32_MARKS):
            return "", None, "encoding"
        if is_binary(content):
            return "", None, "binary"
        try:
            text = content.decode("utf-8-sig") if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            return "", None, "encoding"
        num_chars = len(text)
        as_lines = text.replace("\r\n", "\n")
        text = repaired(as_lines)
        if not text.strip():
            return "", num_chars, "empty"
        if num_chars > self.max_chars:
            return "", num_chars, "too_long"
        self.counts.repaired += len(text) != len(as_lines)
        return text, num_chars, None

    def _title_and_text(self, fields: Mapping[str, object], text: str) -> tuple[str, str]:
        """The title and the text.

        If no title is given, it is a quoted first line of `contents` (removed from the text, as in
        Pyserini's and FlashRAG's Wikipedia dumps), a markdown heading, the file's name, or the
        beginning of the first line.
        """
        if title := to_text(first_value(fields, self.columns.title)).strip():
            return title, text
        first, _, rest = text.lstrip().partition("\n")
        first = first.strip()
        if (
            "contents" in fields
            and "text" not in fields
            and rest.strip()
            and re.fullmatch(r'".+"', first)
        ):
            return first[1:-1], rest
        if heading := re.match(r"#{1,6}\s+(.*\S)", first):
            return re.sub(r"\s+#+$", "", heading[1]), text
        return str(fields.get("file_name") or opening(text)), text
