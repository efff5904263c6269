"""How read_corpus handles good, bad and hostile files."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_prep.contamination.benchmarks import Benchmark, read_passages
from corpus_prep.read.documents import CorpusCounts, DocumentRow, read_corpus
from corpus_prep.read.fields import to_number
from corpus_prep.read.files import Columns
from corpus_prep.read.pieces import cut
from tasks.corpus.documents import corpus_identity

WIKI = Path(__file__).parents[1] / "data" / "wiki_passages_30.parquet"


def by_id(path: Path, **options) -> dict[str, DocumentRow]:
    rows = list(read_corpus(path, **options))
    assert len({row.document_id for row in rows}) == len(rows)
    return {row.document_id: row for row in rows}


def write_jsonl(path: Path, *lines: object) -> Path:
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )
    return path


def test_a_parquet_corpus_keeps_ids_sources_and_licences():
    rows = list(read_corpus(WIKI))
    assert len(rows) == 30
    first = rows[0]
    assert (first.document_id, first.title) == ("2wiki-0", "Teutberga")
    assert first.source.startswith("OSU-NLP-Group/HippoRAG@")
    assert first.licence == "CC BY-SA (Wikipedia); repo MIT"
    assert first.num_chars == len(first.text) and first.dropped_reason is None


def test_a_folder_is_read_in_order_whatever_the_types(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.md").write_text("# Bees #\nThey dance.")
    (tmp_path / "a.txt").write_text("plain")
    with gzip.open(tmp_path / "sub" / "c.jsonl.gz", "wt") as lines:
        lines.write('{"doc_id": 7, "contents": "seven", "url": "http://seven", "license": "CC0"}\n')
    assert list(read_corpus(tmp_path)) == [
        DocumentRow("a.txt", "a", "plain", f"{tmp_path}/a.txt", None, 5),
        DocumentRow("b.md", "Bees", "# Bees #\nThey dance.", f"{tmp_path}/b.md", None, 20),
        DocumentRow("7", "seven", "seven", "http://seven", "CC0", 5),
    ]


def test_ids_that_are_not_given_survive_a_move(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "a.jsonl", {"text": "one"}, {"text": "two"})
    assert (
        list(by_id(tmp_path / "here"))
        == list(by_id(tmp_path / "there"))
        == ["a.jsonl:1", "a.jsonl:2"]
    )


def test_a_quoted_first_line_of_contents_is_the_title(tmp_path):
    write_jsonl(
        tmp_path / "a.jsonl",
        {"id": "1", "contents": '"Aaron"\nHe was.'},
        {"id": "2", "text": '"Hi."\nHe said.'},
    )
    rows = by_id(tmp_path / "a.jsonl")
    assert (rows["1"].title, rows["1"].text) == ("Aaron", "He was.")
    assert rows["2"].text == '"Hi."\nHe said.'


def test_every_unusable_text_file_gives_a_row_with_its_reason(tmp_path):
    contents = {
        "good.txt": b"\xef\xbb\xbfcaf\xc3\xa9",
        "latin1.txt": b"caf\xe9",
        "utf16.txt": "café".encode("utf-16"),
        "image.md": b"\x89PNG\0\0",
        "blank.txt": b" \n\t",
        "zero.txt": b"",
        "exact.txt": "é".encode() * 10,
        "eleven.txt": "é".encode() * 11,
        "huge.txt": b"x" * 41,
        "page.docx": b"PK",
        ".hidden.txt": b"not looked at",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path)
    counts = CorpusCounts()
    rows = by_id(tmp_path, max_chars=10, counts=counts)
    assert {name: row.dropped_reason for name, row in rows.items()} == {
        "good.txt": None,
        "exact.txt": None,
        "latin1.txt": "encoding",
        "utf16.txt": "encoding",
        "image.md": "binary",
        "blank.txt": "empty",
        "zero.txt": "empty",
        "eleven.txt": "too_long",
        "huge.txt": "too_long",
        "page.docx": "unsupported_type",
        "dangling.txt": "unreadable",
    }
    assert rows["good.txt"].text == "café"
    assert (rows["eleven.txt"].num_chars, rows["eleven.txt"].text) == (11, "")
    assert (counts.kept, counts.num_rows, counts.dropped["encoding"]) == (2, 11, 2)


def test_every_unusable_json_line_gives_a_row_with_its_line_number(tmp_path):
    path = write_jsonl(
        tmp_path / "a.jsonl",
        {"id": "a", "text": "one"},
        '{"id": "b", "text": ',
        "",
        [1, 2],
        {"id": "c", "body": "x"},
        {"id": "d", "text": None},
        {"id": "e", "text": 5},
        '{"id": "f", "text": "\\ud800"}',
        {"id": "a", "text": "another one"},
        {"id": "a", "text": "one"},
        {"id": "g", "text": "nul\0"},
        "[" * 100_000,
    )
    with path.open("ab") as file:
        file.write(b'{"id": "h", "text": "caf\xe9"}\n')
    rows = by_id(path)
    assert {name: row.dropped_reason for name, row in rows.items()} == {
        "a": None,
        "a.jsonl:2": "bad_json",
        "a.jsonl:4": "bad_json",
        "c": "no_text",
        "d": "empty",
        "e": "no_text",
        "f": None,
        "a#a.jsonl:9": None,
        "a#a.jsonl:10": "duplicate_id",
        "g": "binary",
        "a.jsonl:12": "bad_json",
        "a.jsonl:13": "encoding",
    }
    assert rows["a.jsonl:2"].source == f"{path}:2"
    assert (rows["f"].text, rows["a#a.jsonl:9"].text) == ("\ufffd", "another one")


def test_a_json_line_without_end_is_too_long_and_the_next_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 300_000}) + "\n" + '{"id": "after", "text": "ok"}\n')
    rows = by_id(path, max_chars=10)
    assert rows["a.jsonl:1"].dropped_reason == "too_long"
    assert rows["after"].text == "ok"


def test_a_truncated_archive_keeps_what_came_before_the_damage(tmp_path):
    whole = gzip.compress(b'{"id": "a", "text": "one"}\n' * 2_000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) - 20])
    (tmp_path / "b.txt").write_text("fine")
    rows = by_id(tmp_path)
    assert rows["a.jsonl.gz"].dropped_reason == "unreadable"
    assert "(" in rows["a.jsonl.gz"].source
    assert rows["b.txt"].dropped_reason is None


def test_one_value_that_is_not_utf8_does_not_cost_its_parquet_batch(tmp_path):
    bytes_as_text = pa.array([b"fine", b"caf\xe9", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": [1, 2, 3], "content": bytes_as_text}), tmp_path / "a.parquet")
    rows = by_id(tmp_path / "a.parquet")
    assert [rows[name].dropped_reason for name in "123"] == [None, "encoding", "empty"]


def test_a_parquet_file_without_a_text_column_names_the_columns_it_has(tmp_path):
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no more")
    (tmp_path / "c.txt").write_text("fine")
    rows = by_id(tmp_path)
    assert (rows["a.parquet"].dropped_reason, "(columns body)" in rows["a.parquet"].source) == (
        "no_text",
        True,
    )
    assert rows["b.parquet"].dropped_reason == "unreadable"


def test_a_missing_path_and_an_unsupported_type_are_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read_corpus(tmp_path / "nowhere")
    (tmp_path / "a.docx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"a\.docx is not of a supported type.*\.jsonl"):
        read_corpus(tmp_path / "a.docx")
    with pytest.raises(ValueError, match="has 1 file"):
        read_corpus(tmp_path)


def test_a_corpus_without_any_usable_document_says_why(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", "{", {"text": ""}, {"text": " "})
    with pytest.raises(ValueError, match=r"bad_json 1, empty 2; first: .*a\.jsonl:1: bad_json"):
        list(read_corpus(tmp_path))


def test_progress_is_told_every_thousand_rows_and_at_the_end(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", *({"text": "x"} for _ in range(2_500)))
    told: list[int] = []
    list(read_corpus(tmp_path, progress=lambda counts: told.append(counts.num_rows)))
    assert told == [1_000, 2_000, 2_500]


def test_one_id_in_two_files_keeps_both_documents_and_drops_a_copy(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", *({"id": n, "text": f"first {n}"} for n in range(100)))
    write_jsonl(
        tmp_path / "b.jsonl",
        *({"id": n, "text": f"second {n}"} for n in range(100)),
        {"id": 7, "text": "first 7"},
    )
    counts = CorpusCounts()
    rows = by_id(tmp_path, counts=counts)
    assert [rows[name].text for name in ("7", "7#b.jsonl:8")] == ["first 7", "second 7"]
    assert (counts.kept, counts.renamed, dict(counts.dropped)) == (200, 100, {"duplicate_id": 1})
    assert rows["7#b.jsonl:101"].dropped_reason == "duplicate_id"


def test_a_few_stray_nuls_and_zero_width_characters_do_not_cost_a_document(tmp_path):
    filing = "Item 1. " * 500
    (tmp_path / "a.txt").write_text(filing[:100] + "\0" + filing[100:])
    (tmp_path / "b.txt").write_text("dedupli\u00adcation of\u200b text\ufeff \u0646\u200c\u0645")
    (tmp_path / "c.txt").write_bytes(b"\0\1" * 50)
    counts = CorpusCounts()
    rows = by_id(tmp_path, counts=counts)
    assert (rows["a.txt"].text, rows["a.txt"].num_chars) == (filing, len(filing) + 1)
    # Persian keeps its non-joiner
    assert rows["b.txt"].text == "deduplication of text \u0646\u200c\u0645"
    assert (rows["c.txt"].dropped_reason, counts.repaired) == ("binary", 2)


def test_a_long_document_is_cut_where_it_pauses_and_nothing_of_it_is_lost(tmp_path):
    paragraphs = [f"{n} " + "word " * (20 + 7 * n) for n in range(24)]
    text = "\n\n".join(paragraphs)
    write_jsonl(
        tmp_path / "a.jsonl",
        {"id": "long", "title": "T", "text": text},
        {"id": "long#1of8", "text": "own"},
    )
    counts = CorpusCounts()
    rows = list(read_corpus(tmp_path, piece_chars=2_600, counts=counts))
    pieces = [row for row in rows if row.piece_of == "long"]
    assert "".join(row.text for row in pieces) == text and len(rows) == len(pieces) + 1
    assert all(975 <= len(row.text) <= 2_600 and row.title == "T" for row in pieces)
    # a paragraph has 1,145 characters
    assert sum(row.text.endswith("\n\n") for row in pieces[:-1]) >= len(pieces) - 2
    assert pieces[1].document_id == f"long#2of{len(pieces)}"
    assert len({row.document_id for row in rows}) == len(rows)
    assert (counts.cut, counts.kept) == (1, len(rows))


def test_a_piece_of_nothing_but_blanks_is_empty(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", {"id": "a", "text": "x" * 90 + " " * 200 + "y" * 90})
    rows = list(read_corpus(tmp_path, piece_chars=100))
    assert [(bool(row.text), row.dropped_reason) for row in rows] == [
        (True, None),
        (False, "empty"),
        (False, "empty"),
        (True, None),
    ]


def test_windows_line_ends_are_line_ends_and_count_as_no_repair(tmp_path):
    paragraphs = ["word " * 20 + "end." for _ in range(8)]
    (tmp_path / "a.txt").write_bytes("\r\n\r\n".join(paragraphs).encode())
    counts = CorpusCounts()
    rows = list(read_corpus(tmp_path, piece_chars=250, counts=counts))
    assert len(rows) == 4 and all(row.text.strip().endswith("end.") for row in rows)
    assert "".join(row.text for row in rows) == "\n\n".join(paragraphs) and not counts.repaired


@pytest.mark.parametrize(
    ("sentence", "end"), [("一二三四五六七八。", "。"), ("Is it so? ", "? "), ("It is so! ", "! ")]
)
def test_long_texts_are_cut_after_sentences(sentence, end):
    pieces = list(cut(sentence * 20, 64))
    assert len(pieces) > 2 and all(piece.endswith(end) for piece in pieces)


@pytest.mark.parametrize("top", ["corpus", "benchmark"])
def test_files_behind_a_link_to_a_folder_are_part_of_what_is_read_and_of_its_identity(
    tmp_path, top
):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", {"question": "who wrote that", "text": "Ada wrote that."})
    (tmp_path / top).mkdir()
    (tmp_path / top / "linked").symlink_to(folder)
    (tmp_path / top / ".hidden.jsonl").write_text('{"text": "hidden"}')
    path = str(tmp_path / top)
    if top == "corpus":
        assert [row.text for row in read_corpus(path)] == ["Ada wrote that."]
    else:
        passages = read_passages(Benchmark(name="b", path=path))
        assert {p["text"] for p in passages} == {"who wrote that", "Ada wrote that."}
    before = corpus_identity(path)
    write_jsonl(folder / "a.jsonl", {"text": "Bo wrote that."})
    assert corpus_identity(path) != before


def test_a_number_too_large_for_a_score_is_none():
    assert to_number(10**400) is None and to_number("1e400") is None and to_number(3) == 3.0


def test_a_date_is_read_where_it_is_named(tmp_path):
    write_jsonl(
        tmp_path / "a.jsonl", {"text": "x", "filed": "2022-02-09"}, {"text": "y", "filed": "soon"}
    )
    assert [row.date for row in read_corpus(tmp_path, columns=Columns(date=("filed",)))] == [
        "2022-02-09",
        None,
    ]
