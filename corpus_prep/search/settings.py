"""Settings of search: the embedding model, and how its vectors are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

GIB = 1 << 30


class EmbeddingConfig(BaseModel):
    """A sentence-transformers model: a hub name with its pinned revision, or a local folder.

    Default: E5-base-v2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = "intfloat/e5-base-v2"
    revision: str | None = "f52bf8ec8c7124536f0efb74aca902b2995e5bcd"
    query_prefix: str = "query: "
    document_prefix: str = "passage: "
    device: str | None = None
    """None: a GPU if there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the model and of the exact search; the candidates are scored again in float32.
    On a CPU without bfloat16 instructions (avx512_bf16, amx_bf16) only float32 is fast."""
    batch_size: PositiveInt = 64

    @model_validator(mode="before")
    @classmethod
    def _a_folder_has_no_revision(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "revision" in values or not values.get("model"):
            return values
        if not Path(str(values["model"])).is_dir():
            return values
        return {**values, "revision": None}

    @model_validator(mode="after")
    def _revision_belongs_to_model(self) -> Self:
        named = {"model", "revision"} & self.model_fields_set
        if named == {"model"} and self.model != EmbeddingConfig.model_fields["model"].default:
            raise ValueError(f"embedding model {self.model}: name its revision too, a commit hash.")
        if self.revision is None and not Path(self.model).is_dir():
            raise ValueError(
                f"embedding model {self.model} is not a local folder: pin its revision, a commit"
                " hash."
            )
        return self


def check_model(config: EmbeddingConfig) -> None:
    """Raise ValueError for a model that does not exist, without loading it."""
    from huggingface_hub import hf_hub_download

    try:
        if not Path(config.model).is_dir():
            hf_hub_download(config.model, "config.json", revision=config.revision)
        elif not (Path(config.model) / "config.json").exists():
            raise FileNotFoundError("the folder has no config.json")
    except (OSError, ValueError) as problem:
        raise ValueError(
            f"embedding model {config.model} (revision {config.revision}) cannot be loaded:"
            f" {problem}. Give a local folder or download it first; without an embedding model BM25"
            " is used."
        ) from problem


Kind = Literal["exact", "ivf_sq8", "ivf_pq"]


class VectorSearch(BaseModel):
    """How the vectors of an index are searched.

    exact: a product with all vectors, in the device's memory and the model's dtype.
    ivf_sq8, ivf_pq: a faiss inverted file, mapped from disk, with one byte per dimension or
    `pq_bytes` per vector. auto: exact up to 2 GiB of stored vectors (1.4 million of 768 dimensions
    in 16 bits), ivf_sq8 up to 64 GiB, else ivf_pq.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["auto"] | Kind = "auto"
    lists: PositiveInt | None = None
    """Lists of the inverted file. None: 4 * sqrt(documents), faiss's guideline."""
    probes: PositiveInt = 64
    """Lists searched per query."""
    pq_bytes: PositiveInt = 96
    candidates: PositiveInt | None = None
    """Documents per hit that are scored again in float32. None: 4, or 32 for ivf_pq."""
    seed: int = 0
    chunk_chars: PositiveInt | None = None
    """Longer documents are cut into pieces at pauses; a search finds and shows a document's best
    piece. None: documents stay whole, and an embedding sees only their beginning."""

    def resolved(self, vector_DH: np.ndarray) -> VectorSearch:
        """The settings with every default that depends on the vectors filled in."""
        num, dimensions = vector_DH.shape
        size = num * dimensions * vector_DH.itemsize
        kind = self.kind if self.kind != "auto" else choose(size)
        lists = min(self.lists or max(1, int(4 * num**0.5)), num)
        pq_bytes = max(part for part in range(1, self.pq_bytes + 1) if dimensions % part == 0)
        settled = {
            "kind": kind,
            "lists": lists,
            "pq_bytes": pq_bytes,
            "probes": min(self.probes, lists),
        }
        candidates = self.candidates or (32 if kind == "ivf_pq" else 4)
        return self.model_copy(update={**settled, "candidates": candidates})


def choose(num_bytes: int) -> Kind:
    """The kind of search for stored vectors of this size."""
    if num_bytes <= 2 * GIB:
        return "exact"
    if num_bytes <= 64 * GIB:
        return "ivf_sq8"
    return "ivf_pq"
