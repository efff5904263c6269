"""Embed texts as vectors with sentence-transformers."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

if TYPE_CHECKING:
    from corpus_prep.corpus import Shard
    from corpus_prep.search.settings import EmbeddingConfig

TEXTS_AT_ONCE = 16_384  # sorted by length, longest first, which saves padding
KEPT_EVERY_S = 5.0
Pair = tuple[str | None, str]  # title and text
CHARS_PER_TOKEN = 16  # before tokenizing, a text is cut to this times the model's limit in tokens


class Encoder:
    """Embeds texts as normalised float32 vectors. Threads may share it; they take turns."""

    def __init__(self, config: EmbeddingConfig):
        self.config = config
        self.device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = getattr(torch, config.dtype)
        self._turn = threading.Lock()  # a tokenizer and a model serve one call at a time
        try:
            self._model = SentenceTransformer(
                config.model,
                revision=config.revision,
                device=self.device,
                model_kwargs={"dtype": self.dtype},
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"embedding model {config.model} (revision {config.revision}, device {self.device})"
                f" cannot be loaded: {error}. Give a local folder or download it first; without an"
                " embedding model BM25 is used."
            ) from error
        self._max_chars = CHARS_PER_TOKEN * (self._model.max_seq_length or 1 << 20)

    def __call__(self, texts: list[str]) -> np.ndarray:
        cut = [text[: self._max_chars] for text in texts]
        with self._turn:
            vectors = self._model.encode(
                cut,
                batch_size=self.config.batch_size,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
        return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of queries, each with the model's query prefix.

        Returns float32 vectors of length 1, [queries, dimensions].
        """
        return self([self.config.query_prefix + text for text in texts])

    def documents(self, titles_and_texts: Iterable[Pair]) -> np.ndarray:
        """Vectors of documents as they are stored: float32 for a float32 model, else float16."""
        vectors = self(
            [
                f"{self.config.document_prefix}{title or ''}\n{text}"
                for title, text in titles_and_texts
            ]
        )
        return vectors.astype(np.float32 if self.config.dtype == "float32" else np.float16)


def free_gpu_memory() -> None:
    """Release the GPU memory that torch keeps after a model is no longer used.

    Engines and updates need it. The few hundred megabytes of the process's CUDA context stay.
    """
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def write_vectors(
    encoder: Encoder, shard: Shard, progress: Callable[[int], None] = lambda num: None
) -> int:
    """Write the vectors of a shard's documents, whole or not at all; returns their number.

    Finished vectors are saved every few seconds in a folder beside the file, so a kill loses no
    more than that. Batches are the same after a kill, and so are the vectors. progress: called with
    the number of documents done.
    """
    parts = shard.out.with_name(f"{shard.out.name}.parts")
    parts.mkdir(exist_ok=True)
    pairs = (
        pair
        for _, batch in shard.batches(["title", "text"])
        for pair in zip(batch["title"].to_pylist(), batch["text"].to_pylist(), strict=True)
    )
    done = 0
    blocks = []
    for number, some in enumerate(batched(pairs, TEXTS_AT_ONCE)):
        blocks.append(
            _resumed(
                encoder,
                some,
                parts / f"{number:05d}",
                lambda num, before=done: progress(before + num),
            )
        )
        done += len(some)
    _save(shard.out, np.concatenate(blocks))
    shutil.rmtree(parts)
    return done


def _resumed(
    encoder: Encoder, pairs: Sequence[Pair], place: Path, progress: Callable[[int], None]
) -> np.ndarray:
    """Vectors of documents, a batch at a time, longest first to save padding.

    Parts are `place-00000000.npy`, ..., named by the number of documents before them.
    """
    order = np.argsort([-len(text) for _, text in pairs], kind="stable")
    parts = [np.load(file) for file in sorted(place.parent.glob(f"{place.name}-*.npy"))]
    saved = done = sum(map(len, parts))
    fresh = []
    told = time.monotonic()
    while done < len(pairs):
        fresh.append(
            encoder.documents([pairs[n] for n in order[done : done + encoder.config.batch_size]])
        )
        done += len(fresh[-1])
        if time.monotonic() - told > KEPT_EVERY_S or done == len(pairs):
            parts.append(np.concatenate(fresh))
            _save(place.with_name(f"{place.name}-{saved:08d}.npy"), parts[-1])
            saved = done
            fresh = []
            told = time.monotonic()
            progress(done)
    vectors = np.concatenate(parts)
    vectors[order] = vectors.copy()
    return vectors


def _save(file: Path, vectors: np.ndarray) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with fresh.open("wb") as out:
        np.save(out, vectors)
    os.rename(fresh, file)


def batched(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    """Yield the pairs in lists of `size`; the last may be shorter."""
    remaining = iter(pairs)
    while some := list(islice(remaining, size)):
        yield some


def vectors_of(encoder: Encoder, titles_and_texts: Iterable[Pair]) -> Iterator[np.ndarray]:
    """The vectors of documents, a few thousand at a time."""
    yield from map(encoder.documents, batched(titles_and_texts, TEXTS_AT_ONCE))


def join_vectors(blocks: Iterable[np.ndarray], count: int, file: Path) -> None:
    """Write blocks of vectors as one array that can be mapped.

    Raises ValueError if they are not `count` in total.
    """
    joined = None
    start = 0
    for block in blocks:
        if joined is None:
            joined = np.lib.format.open_memmap(
                file, mode="w+", dtype=block.dtype, shape=(count, block.shape[1])
            )
        joined[start : start + len(block)] = block
        start += len(block)
    if joined is None or start != count:
        raise ValueError(f"{start} vectors for {count} documents in {file}.")
    joined.flush()
