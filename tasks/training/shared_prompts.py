# transformers types its registry of attention functions loosely.
# pyright: reportArgumentType=false, reportIndexIssue=false
"""Compute the answers to one prompt as one row: the prompt once, then every answer, none attending to another.

A packed row is the prompt without its last token, then for each answer that token and the answer without its own last
token: one position per prediction. An answer's positions continue from the prompt's. Gradients of the prompt's keys and
values add up over the answers, so the update equals that of one row per answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_attend_plainly = ALL_ATTENTION_FUNCTIONS["sdpa"]


class Packed:
    """Where prompt and answers lie in a packed row; `attended` counts the layers that used it.

    Not a dataclass: FSDP2 would give every layer a copy of it, and count nothing here.
    """

    def __init__(self, prefix: int, answers: tuple[int, ...]) -> None:
        self.prefix, self.answers, self.attended = prefix, answers, 0

    @classmethod
    def of(cls, prompt_tokens: int, answer_tokens: Sequence[int]) -> Packed:
        return cls(prompt_tokens - 1, tuple(answer_tokens))

    def pack(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model's inputs of one row, labels shifted, from rows and labels (G, P + T), padded on the right."""
        n, device = self.prefix, input_ids.device
        spans = [(slice(n, n + length), slice(n + 1, n + length + 1)) for length in self.answers]
        ids = torch.cat([input_ids[0, :n], *(input_ids[g, read] for g, (read, _) in enumerate(spans))])
        ahead = torch.full((n,), -100, device=device, dtype=labels.dtype)
        targets = torch.cat([ahead, *(labels[g, said] for g, (_, said) in enumerate(spans))])
        counted = [torch.arange(n, device=device), *(torch.arange(n, n + t, device=device) for t in self.answers)]
        return {
            "input_ids": ids[None],
            "shift_labels": targets[None],
            "position_ids": torch.cat(counted)[None],
            # Never read: a 4-D mask keeps transformers from building one over all pairs of tokens.
            "attention_mask": torch.ones((1, 1, 1, 1), device=device, dtype=torch.bool),
        }

    def unpack(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """A value for each position of the packed row, (1, S), back to rows (G, width) of the answers' tokens."""
        lengths = torch.tensor(self.answers, device=values.device)
        there = torch.arange(width, device=values.device)[None] < lengths[:, None]
        return values.new_zeros(there.shape).masked_scatter(there, values[0, self.prefix :])


def understand_packed_rows() -> None:
    """Make transformers' attention ("sdpa") use a model's keyword argument `packed`."""
    ALL_ATTENTION_FUNCTIONS["sdpa"] = _attend


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    packed: Packed | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Queries (1, heads, S, d), keys and values with fewer heads -> (1, S, heads, d)."""
    if packed is None:
        return _attend_plainly(module, query, key, value, attention_mask, scaling=scaling, **others)
    packed.attended += 1
    # Rotary embeddings leave these in float32; autocast would round them, but not where a mask is a bias object.
    query, key = query.to(value.dtype), key.to(value.dtype)
    # CUDA's flash kernel takes fewer key heads than query heads; for the others the key heads are repeated.
    grouped = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
    if not grouped:
        key, value = (repeat_kv(t, query.shape[1] // t.shape[1]) for t in (key, value))
    about = {"scale": scaling, "enable_gqa": grouped}
    parts = [query.shape[2] - packed.prefix - sum(packed.answers), packed.prefix, *packed.answers]
    assert parts[0] == 0, f"a row of {query.shape[2]} tokens is not {packed.prefix} and {packed.answers}"
    q, k, v = (t.split(parts[1:], dim=2) for t in (query, key, value))
    found = [scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True, **about)]
    for own_q, own_k, own_v in zip(q[1:], k[1:], v[1:], strict=True):
        keys, values = torch.cat([k[0], own_k], dim=2), torch.cat([v[0], own_v], dim=2)
        seen = causal_lower_right(own_q.shape[2], keys.shape[2])
        found.append(scaled_dot_product_attention(own_q, keys, values, attn_mask=seen, **about))
    return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None
