"""Every table of corpus preparation: its grain, key, columns, units and nulls.

Millions of documents are joined by their number, the 0-based row of `documents`, and shown by their id.
"""

from __future__ import annotations

import pyarrow as pa

from warehouse.schemas.columns import BOOL, FLOAT, INT, LONG, STRING, STRINGS, Column, define

DOCUMENTS = define(
    "documents",
    "a document of the corpus, usable or dropped",
    "document_id",
    Column("document_id", STRING, "identity within the corpus"),
    Column("title", STRING, "title", "the source has none"),
    Column("text", STRING, "text, UTF-8; empty where it could not be read"),
    Column("source", STRING, "file, or what the corpus names as origin"),
    Column("licence", STRING, "licence", "not stated"),
    Column("num_chars", LONG, "length in characters", "it could not be read"),
    Column("language", STRING, "ISO 639-1 code", "not told"),
    Column("score", FLOAT, "quality as the corpus states it", "not stated"),
    Column("dropped_reason", STRING, "why it is not used", "it is used"),
)

SCREENINGS = define(
    "screenings",
    "a document at one step of the preparation: kept, or why not",
    "document_id",
    Column("document_id", STRING, "the document"),
    Column("kept", BOOL, "whether it goes on"),
    Column("reason", STRING, "first failing test", "kept"),
    Column("instead", STRING, "the document kept in its place", "none"),
)

BANDS = define(
    "bands",
    "a band of a document's MinHash signature",
    "document band",
    Column("document", LONG, "the document's number"),
    Column("band", INT, "0-based"),
    Column("hash", pa.uint64(), "of the band's values: equal in documents that are candidates"),
)

DUPLICATES = define(
    "duplicates",
    "a pair of near-duplicate documents",
    "first second",
    Column("first", LONG, "number of the document that stands earlier in the corpus"),
    Column("second", LONG, "number of the other"),
    Column("first_id", STRING, "the earlier document"),
    Column("second_id", STRING, "the other"),
    Column("jaccard", FLOAT, "exact, of their sets of shingles"),
)

PASSAGES = define(
    "passages",
    "a text of an evaluation set",
    "benchmark passage",
    Column("benchmark", STRING, "the evaluation set"),
    Column("passage", STRING, "its row, and its place in the row"),
    Column("kind", STRING, "question, answer, context, or whole: all contexts of a row together"),
    Column("text", STRING, "the text"),
)

CONTAMINATIONS = define(
    "contaminations",
    "a span of a document that also stands in a passage of an evaluation set",
    "document_id benchmark passage rule start",
    Column("document_id", STRING, "the document"),
    Column("benchmark", STRING, "the evaluation set"),
    Column("passage", STRING, "its passage"),
    Column("rule", STRING, "ngrams or minhash"),
    Column("share", FLOAT, "of the passage's n-grams found in the document, or the Jaccard of their shingles"),
    Column("removes", BOOL, "whether the passage found is enough to drop the document"),
    Column("start", LONG, "first character of the span", "minhash compares whole documents"),
    Column("end", LONG, "character behind the span", "minhash compares whole documents"),
    Column("text", STRING, "the span", "minhash compares whole documents"),
)

EMBEDDINGS = define(
    "embeddings",
    "a document's vector, in the file vectors.npy beside the rows",
    "document_id",
    Column("document_id", STRING, "the document"),
    Column("row", LONG, "the vector's row in that file, 0-based"),
)

MEMBERSHIPS = define(
    "memberships",
    "a document in its cluster",
    "document_id",
    Column("document_id", STRING, "the document"),
    Column("cluster", INT, "its cluster, 0-based"),
    Column("parent", INT, "the cluster of clusters that this one belongs to", "there is one level only"),
    Column("similarity", FLOAT, "cosine to the cluster's centre"),
)

CLUSTERS = define(
    "clusters",
    "a cluster of documents",
    "cluster",
    Column("cluster", INT, "0-based"),
    Column("parent", INT, "the cluster of clusters that it belongs to"),
    Column("num_documents", LONG, "its size"),
    Column("similarity", FLOAT, "mean cosine of its documents to its centre"),
    Column("keywords", STRINGS, "words that tell it from the others, best first"),
    Column("title", STRING, "title of the document nearest to its centre", "it has none"),
)

SEGMENTS = define(
    "segments",
    "a stretch of a document: prose or a table",
    "document_id position",
    Column("document_id", STRING, "the document"),
    Column("position", INT, "0-based"),
    Column("kind", STRING, "prose or table"),
    Column("text", STRING, "the stretch, without blanks around it"),
    Column("num_tokens", INT, "its length"),
)

LENGTHS = define(
    "lengths",
    "a document's length",
    "document_id",
    Column("document_id", STRING, "the document"),
    Column("num_tokens", INT, "in tokens of a model"),
)

DOCUMENT_SETS = define(
    "document_sets",
    "a document among those to be shown together",
    "set_id position",
    Column("set_id", STRING, "the set"),
    Column("position", INT, "0-based"),
    Column("document_id", STRING, "the document"),
    Column("cluster", INT, "the cluster it was drawn from"),
    Column("kind", STRING, "member of the set's cluster, or distractor from another"),
    Column("num_tokens", INT, "its length"),
)

MEASUREMENTS = define(
    "measurements",
    "a number that a step of the preparation is known by",
    "part metric",
    Column("part", STRING, "the step"),
    Column("metric", STRING, "rows_in, rows_out, dropped: REASON, cpu_s, peak_memory_mb, canary_recall, ..."),
    Column("value", FLOAT, "its value"),
)
