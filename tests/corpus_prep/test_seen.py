"""Reading a corpus holds neither its files nor its ids in memory."""

import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.read.documents import read_corpus
from corpus_prep.read.seen import FIRST_SLOTS, TextSet


def test_what_was_added_is_known_and_nothing_else_while_it_grows():
    ids = [f"document {number}" for number in range(FIRST_SLOTS)]  # the slots double meanwhile
    random.Random(0).shuffle(ids)
    seen = TextSet()
    for number, text in enumerate(ids):
        assert text not in seen and len(seen) == number
        seen.add(text)
        seen.add(text)
    assert all(text in seen for text in ids)
    assert not any(f"{text} " in seen for text in ids)


def test_texts_that_differ_in_what_cannot_be_stored_are_two():
    seen = TextSet()
    seen.add("a\ud800")
    assert "a\ud800" in seen and "a\ud801" not in seen and "a" not in seen


def test_an_id_takes_less_than_a_string_in_a_set():
    seen = TextSet()
    strings = set()
    for number in range(100_000):
        seen.add(f"doc-{number:08d}")
        strings.add(f"doc-{number:08d}")
    bytes_of_strings = sys.getsizeof(strings) + sum(map(sys.getsizeof, strings))
    assert seen._slots.itemsize * len(seen._slots) < bytes_of_strings / 4


def test_a_parquet_file_is_not_kept_as_it_is_read(tmp_path):
    noise = random.Random(0)
    file = tmp_path / "corpus.parquet"
    with pq.ParquetWriter(file, pa.schema([("text", pa.string())])) as writer:
        for _ in range(50):
            writer.write_table(
                pa.table({"text": [noise.randbytes(2_000).hex() for _ in range(50)]})
            )
    before = pa.total_allocated_bytes()
    most = 0
    for _ in read_corpus(file):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < file.stat().st_size / 4
