"""The texts of web pages by address: saved pages, and pages from a reading service.

A service such as Jina's Reader answers `https://r.jina.ai/ADDRESS` with the page as text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from corpus_prep.read.documents import read_corpus
from corpus_prep.read.files import Columns

KEY = "JINA_API_KEY"  # an environment variable; without it the service allows fewer requests
ANSWER_S = 60.0


def saved_pages(path: Path) -> Mapping[str, str]:
    """The texts of a WARC file, or of rows with url and text, by address."""
    rows = read_corpus(path, columns=Columns(source=("url", "source")))
    return {row.source: row.text for row in rows if row.dropped_reason is None}


def read_pages(addresses: Iterable[str], service: str, into: Path) -> dict[str, str]:
    """Append to `into` the page of every address that it does not hold yet, one JSON line each.

    Returns, by address, why a page could not be read. Another call requests only these pages, and
    one whose line was cut off.
    """
    import httpx

    known = set[str]()
    if into.is_file():
        _drop_cut_off_line(into)
        with into.open(encoding="utf-8") as saved:
            known = {json.loads(line)["url"] for line in saved if line.strip()}
    headers = {}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    failures: dict[str, str] = {}
    into.parent.mkdir(parents=True, exist_ok=True)
    with (
        httpx.Client(headers=headers, timeout=ANSWER_S, follow_redirects=True) as client,
        into.open("a", encoding="utf-8") as lines,
    ):
        for address in dict.fromkeys(addresses):
            if address in known:
                continue
            try:
                reply = client.get(service + address)
                reply.raise_for_status()
            except httpx.HTTPError as problem:
                # a server's message may repeat the key
                failures[address] = type(problem).__name__
                continue
            row = {"url": address, "text": reply.text}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            lines.flush()
    return failures


def _drop_cut_off_line(path: Path) -> None:
    """Truncate a file after its last line end."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)
