"""Read documents with a layout: web pages, web archives and PDF."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Iterator
from typing import Any

from corpus_prep.read.files import PAGE_BYTES_PER_CHAR, PDF_BYTES_PER_CHAR, Record, SourceFile
from corpus_prep.read.repair import is_binary

TEXTS = ("text/html", "application/xhtml+xml", "text/plain")
CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
OWN_CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([\w.:-]*)""", re.IGNORECASE)
WINDOWS = "cp1252"
HEAD_BYTES = 4096  # where a page names its own charset


def page(source_file: SourceFile) -> Iterator[Record]:
    """Yield one record with title and text of a web page (`article`), or a record `too_long`.

    Raises OSError or the decompressor's error for a file that cannot be read.
    """
    content = source_file.content(PAGE_BYTES_PER_CHAR)
    if content is None:
        yield source_file.dropped("too_long")
    else:
        yield Record(
            source_file.place,
            source_file.source,
            {**article(content), "file_name": source_file.stem},
        )


def article(content: bytes, charset: str | None = None) -> dict[str, object]:
    """Title and text of a web page, without menus and footers.

    If no main part can be identified, the text is all of the page's text. `charset` is the
    server's.
    """
    import lxml.etree as etree
    import trafilatura  # 0.4 s
    from lxml import html

    if is_binary(content):
        return {"text": content}  # the decoder later reports binary, or an encoding
    decoded = _decoded(content, charset)
    encoding = None  # the page's own, or a guess
    if decoded is not None:
        content = decoded.encode("utf-8", "replace")
        encoding = "utf-8"
    try:
        tree = html.fromstring(
            content.replace(b"\0", b""), parser=html.HTMLParser(encoding=encoding)
        )
    except (etree.ParserError, ValueError):
        return {"text": b""}
    etree.strip_elements(tree, "script", "style", with_tail=False)
    title = " ".join(tree.findtext(".//title", "").split())
    text = trafilatura.extract(tree) or "\n".join(
        line for line in map(str.strip, tree.itertext()) if line
    )
    return {"text": text, "title": title}


def _decoded(content: bytes, charset: str | None) -> str | None:
    """A page's text in UTF-8, else in the server's `charset`, else in Windows-1252 if the page
    names no other charset.

    None if the page names any other charset, and for ASCII, since the page may say that it is
    ISO-2022-JP.

    >>> _decoded("Zoë".encode(), None), _decoded("“Zoë”".encode("cp1252"), "latin-1")
    ('Zoë', '“Zoë”')
    >>> _decoded("<meta charset=koi8-r>Зоя".encode("koi8-r"), None) is None
    True
    """
    if not content.isascii():
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    own = OWN_CHARSET.search(content[:HEAD_BYTES])
    if charset is not None:
        # one wrong byte, as where a page is cut off, does not rule out the charset
        errors = "strict" if own else "replace"
        try:
            return content.decode(_as_browsers_read(charset), errors)
        except (LookupError, ValueError):  # no such charset, or not the page's
            pass
    if content.isascii():
        return None
    if own is None or _as_browsers_read(own[1].decode()) == WINDOWS:
        return content.decode(WINDOWS, "replace")
    return None


def _as_browsers_read(charset: str) -> str:
    """The codec that browsers use for a charset's name.

    They read Latin-1 and ASCII as Windows-1252 (WHATWG, Encoding Standard, 4.2), because pages that
    state them have its quotes and dashes.

    >>> _as_browsers_read("ISO-8859-1"), _as_browsers_read("us-ascii"), _as_browsers_read("x-own")
    ('cp1252', 'cp1252', 'x-own')
    """
    try:
        codec = codecs.lookup(charset).name
    except LookupError:
        return charset
    if codec in ("iso8859-1", "ascii"):
        return WINDOWS
    return codec


def archived(source_file: SourceFile) -> Iterator[Record]:
    """The pages of a WARC file, or the texts of a WET file.

    Skips requests and metadata; yields a reason for a page that the server refused and for content
    that is not text.
    """
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    number = 0
    with source_file.stream() as stream:
        records = ArchiveIterator(stream)
        while True:
            try:
                record = next(records)
            except StopIteration:
                return
            # warcio fails with AttributeError on a response without WARC-Target-URI
            except (ArchiveLoadFailed, AttributeError) as error:
                yield source_file.dropped("unreadable", f"after record {number}: {error}")
                return
            if record.rec_type in ("response", "resource", "conversion"):
                number += 1
                yield _of_record(source_file, number, record)


def _of_record(source_file: SourceFile, number: int, record: Any) -> Record:
    place = f"{source_file.place}:{number}"
    address = record.rec_headers.get_header("WARC-Target-URI") or source_file.source
    http = record.http_headers if record.rec_type == "response" else None
    if http is not None and (status := http.get_statuscode()) != "200":
        return Record(place, f"{address} (HTTP {status})", reason="no_text")
    headers = http or record.rec_headers
    content_type = headers.get_header("Content-Type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in TEXTS:
        return Record(place, f"{address} ({kind or 'no Content-Type'})", reason="unsupported_type")
    most = PAGE_BYTES_PER_CHAR * source_file.max_chars
    content = record.content_stream().read(most + 1)
    if len(content) > most:
        return Record(place, address, reason="too_long")
    if kind == "text/plain":
        return Record(place, address, {"text": content})
    named = CHARSET.search(content_type)
    return Record(place, address, article(content, named and named[1]))


def pdf(source_file: SourceFile) -> Iterator[Record]:
    """The stored text of a PDF, page by page; a scanned PDF has none."""
    try:
        import pypdf
    except ImportError:
        yield source_file.dropped(
            "unsupported_type", "PDF needs the extra `pdf`: pip install 'selfplay-flows[pdf]'"
        )
        return
    content = source_file.content(PDF_BYTES_PER_CHAR)
    if content is None:
        yield source_file.dropped("too_long")
        return
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns about every oddity of a file
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        text = "\n\n".join(page.extract_text() for page in reader.pages)
        title = (reader.metadata and reader.metadata.title) or ""
    except Exception as error:  # a damaged file can raise anything
        yield source_file.dropped("unreadable", f"{type(error).__name__}: {error}")
        return
    yield Record(
        source_file.place,
        source_file.source,
        {"text": text, "title": str(title), "file_name": source_file.stem},
    )
