# TRL imports it from elsewhere.
# pyright: reportPrivateImportUsage=false
"""A model's head on GPUs: float32 logits, as engines there give them."""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer import grpo_trainer

_add_head = grpo_trainer.add_fused_lm_head


def give_float32_logits() -> None:
    """Have TRL's head multiply in float32. By default it rounds logits to the dtype of the arithmetic, in bfloat16
    those around 20 to eighths.

    The factors are rounded to bfloat16 before, as in an engine: GPUs multiply such numbers exactly as TF32.
    """
    grpo_trainer.add_fused_lm_head = _add_exact_head


def _add_exact_head(model: Any, temperature: float = 1.0, cast_lm_head_to_fp32: bool = False, **others: Any) -> None:
    exact = cast_lm_head_to_fp32 or torch.cuda.is_available()
    _add_head(model, temperature=temperature, cast_lm_head_to_fp32=exact, **others)
