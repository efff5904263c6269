"""Every table of corpus preparation: its grain, key, columns, units and nulls.

Joins over millions of documents use a document's number, its 0-based row in `documents`; people see
its id.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import Hash, Long, define


class Document(TypedDict):
    """A row of `documents`: a document of the corpus, usable or dropped."""

    document_id: Annotated[str, "identity within the corpus"]
    title: Annotated[str | None, "title", "the source has none"]
    text: Annotated[str, "text, UTF-8; empty where it could not be read"]
    source: Annotated[str, "file, or what the corpus names as origin"]
    licence: Annotated[str | None, "licence", "not stated"]
    num_chars: Annotated[Long | None, "length in characters", "it could not be read"]
    language: Annotated[str | None, "ISO 639-1 code", "not told"]
    score: Annotated[float | None, "quality as the corpus states it", "not stated"]
    dropped_reason: Annotated[str | None, "why it is not used", "it is used"]
    date: Annotated[str | None, "ISO 8601 date as the corpus states it", "not stated"]
    piece_of: Annotated[str | None, "the document that this is a piece of", "it is whole"]


DOCUMENTS = define(
    "documents", Document, grain="a document of the corpus, usable or dropped", key="document_id"
)


class Screening(TypedDict):
    """A row of `screenings`: whether one step of the preparation keeps a document, or why not."""

    document_id: Annotated[str, "the document"]
    kept: Annotated[bool, "whether it goes on"]
    reason: Annotated[str | None, "first failing test", "kept"]
    instead: Annotated[str | None, "the document kept in its place", "none"]


SCREENINGS = define(
    "screenings",
    Screening,
    grain="a document at one step of the preparation: kept, or why not",
    key="document_id",
)


class Band(TypedDict):
    """A row of `bands`: a band of a document's MinHash signature."""

    document: Annotated[Long, "the document's number"]
    band: Annotated[int, "0-based"]
    hash: Annotated[Hash, "of the band's values: equal in documents that are candidates"]


BANDS = define("bands", Band, grain="a band of a document's MinHash signature", key="document band")


class Duplicate(TypedDict):
    """A row of `duplicates`: a pair of near-duplicate documents."""

    first: Annotated[Long, "number of the document that stands earlier in the corpus"]
    second: Annotated[Long, "number of the other"]
    first_id: Annotated[str, "the earlier document"]
    second_id: Annotated[str, "the other"]
    jaccard: Annotated[float, "exact, of their sets of shingles"]


DUPLICATES = define(
    "duplicates", Duplicate, grain="a pair of near-duplicate documents", key="first second"
)


class ContainmentRow(TypedDict):
    """A row of `containments`: a document that is contained in another."""

    document_id: Annotated[str, "the document"]
    holder_id: Annotated[str, "the longer document, which stays"]
    share: Annotated[float, "of the document's shingles that the other has"]


CONTAINMENTS = define(
    "containments", ContainmentRow, grain="a document that stands in another", key="document_id"
)


class Passage(TypedDict):
    """A row of `passages`: a text of an evaluation set."""

    benchmark: Annotated[str, "the evaluation set"]
    passage: Annotated[str, "its row, and its place in the row"]
    kind: Annotated[str, "question, answer, context, or whole: all contexts of a row together"]
    text: Annotated[str, "the text"]


PASSAGES = define("passages", Passage, grain="a text of an evaluation set", key="benchmark passage")


class Contamination(TypedDict):
    """A row of `contaminations`: a span of a document that also occurs in an evaluation set."""

    document_id: Annotated[str, "the document"]
    benchmark: Annotated[str, "the evaluation set"]
    passage: Annotated[str, "its passage"]
    rule: Annotated[str, "ngrams, aligned (edited or in part) or minhash"]
    share: Annotated[
        float,
        "of the passage's n-grams or words found in the document, or the Jaccard of their shingles",
    ]
    removes: Annotated[bool, "whether the passage found is enough to drop the document"]
    start: Annotated[Long | None, "first character of the span", "minhash compares whole documents"]
    end: Annotated[Long | None, "character behind the span", "minhash compares whole documents"]
    text: Annotated[str | None, "the span", "minhash compares whole documents"]


CONTAMINATIONS = define(
    "contaminations",
    Contamination,
    grain="a span of a document that also stands in a passage of an evaluation set",
    key="document_id benchmark passage rule start",
)


class Embedding(TypedDict):
    """A row of `embeddings`: a document's vector, in the file vectors.npy beside the rows."""

    document_id: Annotated[str, "the document"]
    row: Annotated[Long, "the vector's row in that file, 0-based"]


EMBEDDINGS = define(
    "embeddings",
    Embedding,
    grain="a document's vector, in the file vectors.npy beside the rows",
    key="document_id",
)


class Membership(TypedDict):
    """A row of `memberships`: a document in its cluster."""

    document_id: Annotated[str, "the document"]
    cluster: Annotated[int, "its cluster, 0-based"]
    parent: Annotated[
        int | None, "the cluster of clusters that this one belongs to", "there is one level only"
    ]
    similarity: Annotated[float, "cosine to the cluster's centre"]


MEMBERSHIPS = define(
    "memberships", Membership, grain="a document in its cluster", key="document_id"
)


class Cluster(TypedDict):
    """A row of `clusters`: a cluster of documents."""

    cluster: Annotated[int, "0-based"]
    parent: Annotated[int, "the cluster of clusters that it belongs to"]
    num_documents: Annotated[Long, "its size"]
    similarity: Annotated[float, "mean cosine of its documents to its centre"]
    keywords: Annotated[list[str], "words that tell it from the others, best first"]
    title: Annotated[str | None, "title of the document nearest to its centre", "it has none"]


CLUSTERS = define("clusters", Cluster, grain="a cluster of documents", key="cluster")


class SegmentRow(TypedDict):
    """A row of `segments`: a stretch of a document, either prose or a table."""

    document_id: Annotated[str, "the document"]
    position: Annotated[int, "0-based"]
    kind: Annotated[str, "prose or table"]
    text: Annotated[str, "the stretch, without blanks around it"]
    num_tokens: Annotated[int, "its length"]


SEGMENTS = define(
    "segments",
    SegmentRow,
    grain="a stretch of a document: prose or a table",
    key="document_id position",
)


class Length(TypedDict):
    """A row of `lengths`: a document's length."""

    document_id: Annotated[str, "the document"]
    num_tokens: Annotated[int, "in tokens of a model"]


LENGTHS = define("lengths", Length, grain="a document's length", key="document_id")


class SetMember(TypedDict):
    """A row of `document_sets`: a document among those to be shown together."""

    set_id: Annotated[str, "the set"]
    position: Annotated[int, "0-based"]
    document_id: Annotated[str, "the document"]
    cluster: Annotated[int, "the cluster it was drawn from"]
    kind: Annotated[str, "member of the set's cluster, or distractor from another"]
    num_tokens: Annotated[int, "its length"]


DOCUMENT_SETS = define(
    "document_sets",
    SetMember,
    grain="a document among those to be shown together",
    key="set_id position",
)


class Measurement(TypedDict):
    """A row of `measurements`: a number that a step of the preparation reports."""

    part: Annotated[str, "the step"]
    metric: Annotated[
        str, "rows_in, rows_out, dropped: REASON, cpu_s, peak_memory_mb, canary_recall, ..."
    ]
    value: Annotated[float, "its value"]


MEASUREMENTS = define(
    "measurements",
    Measurement,
    grain="a number that a step of the preparation is known by",
    key="part metric",
)
