"""Web pages, zstandard archives, Hugging Face datasets and score columns as a corpus."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc

import pyarrow as pa
import pytest

from corpus_prep.read.documents import read_corpus
from corpus_prep.read.files import Columns
from corpus_prep.read.pages import article

PAGE = """<html><head><title>Bees &amp; hives</title><script>var x = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a></nav>
<article><h1>Bees</h1><p>{prose}</p></article><footer>All rights reserved</footer></body></html>"""
PROSE = (
    "A honey bee visits about two million flowers for a jar of honey, and it does so without a"
    " map. " * 5
)


def test_of_a_web_page_the_article_is_the_text(tmp_path):
    (tmp_path / "bees.html").write_text(PAGE.format(prose=PROSE))
    [row] = read_corpus(tmp_path)
    assert (row.document_id, row.title, row.dropped_reason) == ("bees.html", "Bees & hives", None)
    assert "two million flowers" in row.text
    assert not any(word in row.text for word in ("Shop", "var x", "<p>"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<html><body><script>1</script></body></html>", "empty"),
        (b"<p>a\0b</p>", "binary"),
        ("<p>é</p>".encode("utf-16"), "encoding"),
        (b"<" * 300_000, "too_long"),
    ],
)
def test_a_web_page_without_text_says_why(tmp_path, content, reason):
    (tmp_path / "a.htm").write_bytes(content)
    (tmp_path / "b.txt").write_text("fine")
    rows = {row.document_id: row for row in read_corpus(tmp_path, max_chars=10_000)}
    assert rows["a.htm"].dropped_reason == reason


def test_a_web_page_that_names_no_charset_is_read_as_utf_8(tmp_path):
    (tmp_path / "page.html").write_text(
        PAGE.replace("Bees &amp; hives", "Über Bienen").format(prose="Œuvre naïve – ça va. " * 20),
        encoding="utf-8",
    )
    declared = '<html><head><meta charset="windows-1251"></head><body><p>Пчёлы</p></body></html>'
    (tmp_path / "own.html").write_text(declared, encoding="windows-1251")
    rows = {row.document_id: row for row in read_corpus(tmp_path)}
    assert rows["page.html"].title == "Über Bienen"
    assert "Œuvre naïve – ça va." in rows["page.html"].text
    assert rows["own.html"].text == "Пчёлы"


@pytest.mark.parametrize(
    ("content", "charset", "text"),
    [
        ("<p>Où ça – là</p>".encode("windows-1252"), "windows-1252", "Où ça – là"),
        ("<p>Où ça – là</p>".encode(), "iso-8859-1", "Où ça – là"),
        ("<p>Où ça</p>".encode()[:-6], "utf-8", "Où �"),  # cut off within a letter
        ("<meta charset=windows-1251><p>Пчёлы</p>".encode("windows-1251"), "utf-8", "Пчёлы"),
        ("<p>ça</p>".encode("latin-1"), "no-such-charset", "ça"),
        ("<p>“ça” – 5 €</p>".encode("windows-1252"), "ISO-8859-1", "“ça” – 5 €"),
        ("<p>“ça” – 5 €</p>".encode("windows-1252"), None, "“ça” – 5 €"),
        (
            "<meta charset='iso-8859-1'><p>“ça” – 5 €</p>".encode("windows-1252"),
            None,
            "“ça” – 5 €",
        ),
    ],
)
def test_a_page_is_read_in_the_charset_that_the_server_names(content, charset, text):
    assert article(content, charset)["text"] == text


def test_zstandard_lines_are_read_and_a_cut_archive_keeps_what_came_before(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as lines:
        lines.write(
            b"".join(
                json.dumps({"id": str(i), "text": f"text {i}"}).encode() + b"\n"
                for i in range(50_000)
            )
        )
    assert sum(row.dropped_reason is None for row in read_corpus(path)) == 50_000
    path.write_bytes(path.read_bytes()[:-5_000])
    rows = list(read_corpus(path))
    assert 0 < len(rows) < 50_000 and rows[0].text == "text 0"


def test_a_score_column_is_read_where_it_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    scores = [1.0, "0.5", None, "good", float("nan")]
    path.write_text("".join(json.dumps({"text": "x", "quality": s}) + "\n" for s in scores))
    rows = read_corpus(path, columns=Columns(score=("quality",)))
    assert [row.score for row in rows] == [1.0, 0.5, None, None, None]
    assert [row.score for row in read_corpus(path)] == [None] * 5


def test_a_saved_dataset_and_a_streamed_one_give_the_same_rows(tmp_path):
    from datasets import Dataset

    dataset = Dataset.from_list(
        [{"id": "a", "text": "one"}, {"id": "b", "text": ""}, {"id": "a", "text": "two"}]
    )
    dataset.save_to_disk(tmp_path / "saved")
    (tmp_path / "files").mkdir()
    dataset.to_parquet(tmp_path / "files" / "train.parquet")
    saved = list(read_corpus(tmp_path / "saved"))
    streamed = list(read_corpus(f"hf:{tmp_path}/files?split=train"))
    for rows in (saved, streamed):
        assert [row.document_id for row in rows] == ["a", "b", "a#train:3"]
        assert [row.dropped_reason for row in rows] == [None, "empty", None]
    assert streamed[0].source == f"hf:{tmp_path}/files train:1"


def test_a_dataset_of_the_hub_must_name_its_revision():
    with pytest.raises(
        ValueError, match=r"hf:owner/name\?split=train: pin its revision, .*&revision=COMMIT"
    ):
        list(read_corpus("hf:owner/name?split=train"))
    with pytest.raises(
        ValueError, match="there is no option spilt; there are config, split, revision"
    ):
        list(read_corpus("hf:owner/name?spilt=train"))


def zstd(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b' \n[{"id": 1, "text": "one"}, {"id": 2, "text": "two, [3]"}]\n'),
        (
            "a.json",
            b'{"version": 3, "rows": [{"id": 1, "text": "one"}, {"id": 2, "text": "two, [3]"}]}',
        ),
        ("a.ndjson", b'{"id": 1, "text": "one"}\n{"id": 2, "text": "two, [3]"}\n'),
        ("a.csv", b'\xef\xbb\xbfid,text,other\r\n1,one,x\r\n2,"two, [3]",y\r\n'),
        ("a.tsv", b"id\ttext\n1\tone\n2\ttwo, [3]\n"),
    ],
)
@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstd),
    ],
)
def test_rows_are_read_from_every_kind_of_file_however_it_is_compressed(
    tmp_path, name, content, suffix, pack
):
    (tmp_path / f"{name}{suffix}").write_bytes(pack(content))
    rows = list(read_corpus(tmp_path))
    assert [(r.document_id, r.text, r.dropped_reason) for r in rows] == [
        ("1", "one", None),
        ("2", "two, [3]", None),
    ]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_compressed_text_is_one_document_and_no_more_is_unpacked_than_may_be_kept(tmp_path, pack):
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz", zstd: "zst"}[pack]
    (tmp_path / f"one.txt.{suffix}").write_bytes(pack(b"caf\xc3\xa9"))
    (tmp_path / f"two.md.{suffix}").write_bytes(pack(b"x" * 1_000))
    (tmp_path / f"three.txt.{suffix}").write_bytes(pack(b"x" * 100)[:-5])
    rows = {row.document_id.rpartition(".")[0]: row for row in read_corpus(tmp_path, max_chars=200)}
    assert (rows["one.txt"].text, rows["one.txt"].title) == ("café", "one")
    assert (rows["two.md"].dropped_reason, rows["three.txt"].dropped_reason) == (
        "too_long",
        "unreadable",
    )


@pytest.mark.parametrize(
    ("name", "content", "reasons"),
    [
        ("a.json", b'[{"text": "one"}, {"text": ', [None, "bad_json"]),
        ("a.json", b'[{"text": "one"}, 5, {"text": "two"}]', [None, "bad_json", None]),
        ("a.json", b'{"text": "one", "rows": [{"text": "part of it"}]}', [None]),
        ("a.json", b"[" * 100_000, ["bad_json"]),
        ("a.json", b'{"text": "one"', ["bad_json"]),
        ("a.json", b"null", ["bad_json"]),
        ("a.json", b'"a text"', ["bad_json"]),
        (
            "a.warc",
            b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 20\r\n\r\n"
            b"HTTP/1.1 200 OK\r\n\r\nx",
            ["unreadable"],
        ),
        ("a.json", b'[{"text": "caf\xe9"}]', ["encoding"]),
        ("a.csv", b"text\ncaf\xe9\none\n", ["encoding", None]),
        ("a.csv", b"body\none\n", ["no_text"]),
        ("a.csv", b"", ["no_text"]),
        ("a.csv", b'text\none\n"two\nthree\n', [None, "unreadable"]),  # a quote left open
        ("a.tsv", b'id\ttext\n1\t"two" and three\n2\t"four\n3\tfive\n', [None, "unreadable"]),
        # a comma without quotes; an empty value behind the last is none
        ("a.csv", b"id,text\n1,one, two\n2,three,\n", ["unreadable", None]),
        ("a.csv", b"text,contents\n,one\ntwo,\n", [None, None]),
    ],
)
def test_what_is_broken_in_a_file_of_rows_is_told_and_the_rest_is_read(
    tmp_path, name, content, reasons
):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "z.txt").write_text("fine")
    assert [row.dropped_reason for row in read_corpus(tmp_path)] == [*reasons, None]


def test_a_folder_with_a_state_of_its_own_is_no_saved_dataset(tmp_path):
    (tmp_path / "state.json").write_text('{"text": "a state"}')
    assert [row.text for row in read_corpus(tmp_path)] == ["a state"]


def test_a_list_longer_than_what_is_read_at_once_is_read_item_by_item(tmp_path, monkeypatch):
    monkeypatch.setattr("corpus_prep.read.records.CHUNK", 10)
    texts = ["a" * 35, '"], {[', "é" * 200, "", "12"]
    (tmp_path / "a.json").write_text(
        json.dumps([{"text": text} for text in texts], ensure_ascii=False)
    )
    assert [row.text for row in read_corpus(tmp_path)] == texts
    [one, other] = [r for r in read_corpus(tmp_path, max_chars=100) if r.dropped_reason]
    assert (one.dropped_reason, other.dropped_reason) == ("too_long", "empty")


def test_of_an_archive_of_the_web_pages_and_texts_are_documents(tmp_path):
    pytest.importorskip("warcio")
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    with (tmp_path / "a.warc.gz").open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        pages = [
            (
                "http://bees",
                "200 OK",
                "text/html; charset=utf-8",
                PAGE.format(prose=PROSE).encode(),
            ),
            ("http://gone", "404 Not Found", "text/html", b"<p>not here</p>"),
            ("http://picture", "200 OK", "image/png", b"\x89PNG"),
            ("http://plain", "200 OK", "text/plain", b"plain text"),
            (
                "http://words",
                "200 OK",
                'text/html; Charset="windows-1251"',
                "<p>Пчёлы</p>".encode("windows-1251"),
            ),
        ]
        for address, status, kind, body in pages:
            headers = StatusAndHeaders(status, [("Content-Type", kind)], protocol="HTTP/1.1")
            writer.write_record(
                writer.create_warc_record(
                    address, "response", io.BytesIO(body), http_headers=headers
                )
            )
            asked = StatusAndHeaders("GET / HTTP/1.1", [("Host", address)], is_http_request=True)
            writer.write_record(writer.create_warc_record(address, "request", http_headers=asked))
    rows = list(read_corpus(tmp_path))
    assert [(row.document_id, row.dropped_reason) for row in rows] == [
        ("a.warc.gz:1", None),
        ("a.warc.gz:2", "no_text"),
        ("a.warc.gz:3", "unsupported_type"),
        ("a.warc.gz:4", None),
        ("a.warc.gz:5", None),
    ]
    assert rows[4].text == "Пчёлы"
    assert (rows[0].source, rows[0].title) == ("http://bees", "Bees & hives")
    assert "two million flowers" in rows[0].text and "Shop" not in rows[0].text
    assert (rows[1].source, rows[3].text) == ("http://gone (HTTP 404)", "plain text")


PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 144]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 43>>stream
BT /F1 18 Tf 20 100 Td (Bees dance.) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
6 0 obj<</Title(On bees)>>endobj
trailer<</Size 7/Root 1 0 R/Info 6 0 R>>
startxref
0
%%EOF
"""  # noqa: E501


def test_the_text_of_a_pdf_is_read_and_a_damaged_one_says_why(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "bees.pdf").write_bytes(PDF)
    (tmp_path / "torn.pdf").write_bytes(PDF[:60])
    rows = {row.document_id: row for row in read_corpus(tmp_path)}
    assert (rows["bees.pdf"].title, rows["bees.pdf"].text.strip()) == ("On bees", "Bees dance.")
    assert rows["torn.pdf"].dropped_reason == "unreadable"


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_csv_line_without_an_end_is_not_read_into_memory(tmp_path, quote):
    """With 1,000 letters a document, a line may have 12,000 of them and 65,536 others."""
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(f"id,text\n1,short\n2,{quote}")
        for _ in range(50):
            file.write("x" * 1_000_000)
    tracemalloc.start()
    rows = list(read_corpus(path, max_chars=1_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(r.text, r.dropped_reason) for r in rows] == [("short", None), ("", "unreadable")]
    assert "after row 1: a line of more than 77536 letters" in rows[1].source
    assert peak < 5_000_000
