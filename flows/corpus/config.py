"""Settings of prepare-corpus.

The defaults suit any folder of text; a profile holds only departures from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from corpus_prep.clusters.document_sets import Padding, SetSettings
from corpus_prep.clusters.kmeans import Clustering
from corpus_prep.clusters.segments import Splitting
from corpus_prep.contamination.benchmarks import Benchmark
from corpus_prep.contamination.ngrams import NgramRule
from corpus_prep.dedup.containment import Containment
from corpus_prep.dedup.duplicates import Keep
from corpus_prep.dedup.edges import Comparing
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.read.files import Columns
from corpus_prep.read.quality import QualityRules
from corpus_prep.search.settings import EmbeddingConfig, VectorSearch
from corpus_prep.workers import Workers
from flows.settings.profile import Settings


class Deduplication(Settings):
    """Which of several equal or similar documents is kept."""

    near: MinHashing | None = Field(
        default=MinHashing(),
        description="how near-duplicates are found; null: only equal texts are dropped",
    )
    comparing: Comparing = Comparing()
    contained: Containment | None = Field(
        default=Containment(),
        description="how documents contained in others are found; null: they are kept",
    )
    keep: Keep = Field(
        default="longest",
        description=(
            "which document of a family to keep; newest: by the column in columns.date, else the"
            " last"
        ),
    )


class Decontamination(Settings):
    """Evaluation sets whose passages no document may contain."""

    benchmarks: tuple[Benchmark, ...] = Field(
        default=(), description="files of evaluation sets, and the names of their fields"
    )
    registry: tuple[str, ...] = Field(
        default=(), description="more benchmarks, by their names in `selfplay evaluate`"
    )
    folder: str = Field(
        default="data/benchmarks", description="where the registry's benchmark files are"
    )
    ngrams: NgramRule = NgramRule()
    alignment: bool = Field(
        default=True, description="find edited and partial passages; false: only verbatim ones"
    )
    likeness: MinHashing | None = Field(
        default=None, description="also drop near-duplicates of a passage, as in SPELL"
    )


class LongContexts(Settings):
    """Material for long contexts; none by default."""

    tokenizer: str | None = Field(
        default=None,
        description=(
            "tokenizer that measures lengths: a model's folder or owner/name@commit; null: the"
            " embedding model's"
        ),
    )
    sets: SetSettings | None = Field(
        default=None, description="sets of a cluster's documents to show together"
    )
    padding: Padding | None = Field(
        default=None, description="also make the same sets with distractors, as in EAPO"
    )
    segments: Splitting | None = Field(
        default=None, description="separate the prose and tables of documents, as in EAPO"
    )

    @model_validator(mode="after")
    def _tokenizer_is_pinned(self) -> Self:
        if self.tokenizer and "@" not in self.tokenizer and not Path(self.tokenizer).is_dir():
            raise ValueError(
                f"tokenizer {self.tokenizer} is not a local folder: pin its revision,"
                " owner/name@commit"
            )
        return self

    @model_validator(mode="after")
    def _padding_fills_sets(self) -> Self:
        if self.padding is not None and self.sets is None:
            raise ValueError(
                "long_context.padding fills sets: give their size, long_context.sets.size=20"
            )
        return self


class Config(Settings):
    """Settings of prepare-corpus: what is read, which documents are dropped, and how the remaining
    ones are embedded, clustered and indexed."""

    corpus: str = Field(
        description=(
            "a file or folder (text, web pages, JSON, CSV, Parquet, WARC, PDF; see README.md), or "
            "hf:owner/name?split=train&revision=..."
        )
    )
    columns: Columns = Columns()
    max_document_chars: int = Field(
        default=10_000_000, ge=1, description="longer documents are not stored"
    )
    quality: QualityRules = QualityRules()
    duplicates: Deduplication = Deduplication()
    contamination: Decontamination = Decontamination()
    embedding: EmbeddingConfig | None = Field(
        default=None,
        description="embedding model for clusters and index; null: no clusters, and a BM25 index",
    )
    clusters: Clustering | None = None
    long_context: LongContexts = LongContexts()
    search: VectorSearch = VectorSearch()
    canaries: int = Field(
        default=0,
        ge=0,
        description="number of planted copies and passages that the steps should find",
    )
    seed: int = Field(default=0, description="seed of the canaries")
    workers: Workers = Workers()

    @model_validator(mode="after")
    def _clusters_need_vectors(self) -> Self:
        if self.clusters is not None and self.embedding is None and self.grouped_by is None:
            raise ValueError(
                "clusters are made of vectors: name an embedding model, embedding.model; or set"
                " clusters.size=1, which makes every document a cluster of its own, or"
                ' clusters.by="source" or "title"'
            )
        return self

    @model_validator(mode="after")
    def _sets_need_clusters(self) -> Self:
        sets = self.long_context.sets
        if sets is None:
            return self
        if self.clusters is None:
            raise ValueError("sets are made from clusters: give their size, clusters.size=20")
        if self.grouped_by is not None:
            return self
        largest = self.clusters.bounds[1]
        if sets.smallest > largest:
            raise ValueError(
                f"clusters have at most {largest} documents, long_context.sets.smallest is"
                f" {sets.smallest}"
            )
        return self

    @model_validator(mode="after")
    def _lengths_need_a_tokenizer(self) -> Self:
        if (self.long_context.sets or self.long_context.segments) and self.tokenizer is None:
            raise ValueError(
                "sets and segments are measured in tokens: name a tokenizer, long_context.tokenizer"
            )
        return self

    @property
    def grouped_by(self) -> str | None:
        """The column that defines the clusters; None if there are none or they are made by
        meaning."""
        clusters = self.clusters
        if clusters is None:
            return None
        if clusters.by != "meaning":
            return clusters.by
        if clusters.size == 1 and self.embedding is None:
            return "document_id"
        return None

    @property
    def tokenizer(self) -> str | None:
        """The model whose tokens measure lengths; None if none is set."""
        if self.long_context.tokenizer or self.embedding is None:
            return self.long_context.tokenizer
        if not self.embedding.revision:
            return self.embedding.model
        return f"{self.embedding.model}@{self.embedding.revision}"
