"""Settings of search: the embedding model, and how its vectors are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from warehouse.hashes import model_identity

GIB = 1 << 30


class EmbeddingConfig(BaseModel):
    """A sentence-transformers model: a hub name with its pinned revision, or a local folder.

    Default: E5-base-v2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = Field(
        default="intfloat/e5-base-v2", description="a folder, or owner/name on the hub"
    )
    revision: str | None = Field(
        default="f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
        description="a commit on the hub; null for a folder",
    )
    query_prefix: str = Field(
        default="query: ",
        description='text that the model expects before a query; "" for most models except E5',
    )
    document_prefix: str = Field(
        default="passage: ", description="text that the model expects before a document"
    )
    device: str | None = Field(
        default=None,
        description="where the model runs, such as cpu or cuda; null: on a GPU if there is one",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32",
        description=(
            "of the model and of the exact search; candidates are scored again in float32;"
            " on a CPU without bfloat16 instructions (avx512_bf16, amx_bf16) only float32 is"
            " fast"
        ),
    )
    batch_size: PositiveInt = Field(
        default=64, description="texts embedded at once: bounds the memory"
    )

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

    def recipe_identity(self) -> dict[str, Any]:
        """These settings as a recipe records them; see `model_identity`."""
        return {**self.model_dump(mode="json"), "model": model_identity(self.model)}


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


PQ_CODES = 256  # codes of each byte; learning them takes at least as many vectors
Kind = Literal["exact", "ivf_sq8", "ivf_pq"]


class VectorSearch(BaseModel):
    """How the vectors of an index are searched.

    exact: a product with all vectors, in the device's memory and the model's dtype.
    ivf_sq8, ivf_pq: a faiss inverted file, mapped from disk, with one byte per dimension or
    `pq_bytes` per vector. auto: exact up to 2 GiB of stored vectors (1.4 million of 768 dimensions
    in 16 bits), ivf_sq8 up to 64 GiB, else ivf_pq.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["auto"] | Kind = Field(
        default="auto", description="exact, ivf_sq8 or ivf_pq; auto: by the size of the index"
    )
    lists: PositiveInt | None = Field(
        default=None,
        description="lists of the inverted file; null: 4 * sqrt(documents), faiss's guideline",
    )
    probes: PositiveInt = Field(
        default=64, description="lists searched per query: more lists find more and take longer"
    )
    pq_bytes: PositiveInt = Field(
        default=96,
        description=(
            "maximum number of bytes per vector in ivf_pq: more bytes find more and take more"
            " memory"
        ),
    )
    candidates: PositiveInt | None = Field(
        default=None,
        description="documents rescored in float32 for each hit; null: 4, or 32 for ivf_pq",
    )
    seed: int = Field(default=0, description="seed of the inverted file's training")
    chunk_chars: PositiveInt | None = Field(
        default=None,
        description=(
            "longer documents are cut into pieces at pauses, and a search finds and shows the best"
            " piece; null: they stay whole, and an embedding sees only their beginning"
        ),
    )

    def resolved(self, vector_DH: np.ndarray) -> VectorSearch:
        """The settings, with defaults that depend on the stored vectors filled in.

        `vector_DH`: [documents, dimensions]. Raises ValueError for too few vectors to learn codes
        of `ivf_pq`.
        """
        num, dimensions = vector_DH.shape
        size = num * dimensions * vector_DH.itemsize
        kind = self.kind if self.kind != "auto" else choose(size)
        if kind == "ivf_pq" and num < PQ_CODES:
            raise ValueError(
                f"search.kind=ivf_pq learns {PQ_CODES} codes, but there are {num} documents: take"
                " exact or ivf_sq8"
            )
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
    """The kind of search for stored vectors of `num_bytes` in total."""
    if num_bytes <= 2 * GIB:
        return "exact"
    if num_bytes <= 64 * GIB:
        return "ivf_sq8"
    return "ivf_pq"
