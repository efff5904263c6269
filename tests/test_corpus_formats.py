"""Web pages, zstandard archives, Hugging Face datasets and score columns as a corpus."""

import json

import pyarrow as pa
import pytest

from corpus_prep.read.documents import read_corpus
from corpus_prep.read.formats import Columns

PAGE = """<html><head><title>Bees &amp; hives</title><script>var x = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a></nav>
<article><h1>Bees</h1><p>{prose}</p></article><footer>All rights reserved</footer></body></html>"""
PROSE = "A honey bee visits about two million flowers for a jar of honey, and it does so without a map. " * 5


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


def test_zstandard_lines_are_read_and_a_cut_archive_keeps_what_came_before(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as lines:
        lines.write(b"".join(json.dumps({"id": str(i), "text": f"text {i}"}).encode() + b"\n" for i in range(50_000)))
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

    dataset = Dataset.from_list([{"id": "a", "text": "one"}, {"id": "b", "text": ""}, {"id": "a", "text": "two"}])
    dataset.save_to_disk(tmp_path / "saved")
    (tmp_path / "files").mkdir()
    dataset.to_parquet(tmp_path / "files" / "train.parquet")
    saved = list(read_corpus(tmp_path / "saved"))
    streamed = list(read_corpus(f"hf:{tmp_path}/files?split=train"))
    for rows in (saved, streamed):
        assert [row.document_id for row in rows] == ["a", "b", "a#train:3"]
        assert [row.dropped_reason for row in rows] == [None, "empty", "duplicate_id"]
    assert streamed[0].source == f"hf:{tmp_path}/files train:1"


def test_a_dataset_of_the_hub_must_name_its_revision():
    with pytest.raises(ValueError, match=r"hf:owner/name\?split=train: pin its revision, .*&revision=COMMIT"):
        list(read_corpus("hf:owner/name?split=train"))
    with pytest.raises(ValueError, match="there is no option spilt; there are config, split, revision"):
        list(read_corpus("hf:owner/name?spilt=train"))
