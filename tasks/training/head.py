# TRL imports it from elsewhere.
# pyright: reportPrivateImportUsage=false
"""A model's head, which scores tokens.

On GPUs it returns float32 logits, as engines there do; on CPUs its tiles are small enough for
memory to be reused.
"""

from __future__ import annotations

from typing import Any

import torch
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
from trl.trainer import grpo_trainer
from trl.trainer import utils as trl_utils

WIDEST = trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE  # vocabulary entries in a tile
REUSED = 32 << 20  # bytes: glibc's malloc returns larger blocks to the system when freed
_add_head = grpo_trainer.add_fused_lm_head


def give_float32_logits() -> None:
    """Make TRL's head multiply in float32.

    By default it rounds logits to the dtype of the arithmetic: in bfloat16, those around 20 to
    eighths. The factors are rounded to bfloat16 first, as in an engine; GPUs multiply such numbers
    exactly as TF32.
    """
    grpo_trainer.add_fused_lm_head = _add_exact_head


def _add_exact_head(
    model: Any, temperature: float = 1.0, cast_lm_head_to_fp32: bool = False, **others: Any
) -> None:
    exact = cast_lm_head_to_fp32 or torch.cuda.is_available()
    _add_head(model, temperature=temperature, cast_lm_head_to_fp32=exact, **others)


def fit_tiles(labels: torch.Tensor) -> None:
    """Set the width of the tiles in which TRL's head scores the labels that are not -100.

    On GPUs TRL's width is kept.
    """
    if labels.device.type == "cpu":
        trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE = tile_width(int((labels != -100).sum()))


def tile_width(tokens: int) -> int:
    """The number of vocabulary entries in a tile.

    It is the largest power of two for which malloc reuses the memory of float32 tiles.

    >>> tile_width(1), tile_width(224), tile_width(1000), tile_width(100_000)
    (32768, 32768, 8192, 1024)
    """
    rows = min(max(tokens, 1), TOKEN_CHUNK_SIZE)
    return min(WIDEST, 1 << ((REUSED - 1) // (4 * rows)).bit_length() - 1)
