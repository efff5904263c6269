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

LONG = 2048  # tokens: the answers to longer prompts attend to them together, on CPUs; shorter ones gain a tenth
_attend_plainly = ALL_ATTENTION_FUNCTIONS["sdpa"]
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
    if query.device.type == "cpu" and packed.prefix >= LONG and any(packed.answers):
        own = (t[:, :, packed.prefix :] for t in (query, key, value))
        found.append(AttendTogether.apply(*own, k[0], v[0], packed.answers, scaling))
        return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None
    for own_q, own_k, own_v in zip(q[1:], k[1:], v[1:], strict=True):
        keys, values = torch.cat([k[0], own_k], dim=2), torch.cat([v[0], own_v], dim=2)
        seen = causal_lower_right(own_q.shape[2], keys.shape[2])
        found.append(scaled_dot_product_attention(own_q, keys, values, attn_mask=seen, **about))
    return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None


class AttendTogether(torch.autograd.Function):
    """Attention of all answers to the prompt in one product, joined with that of each answer to itself.

    The two softmaxes are joined by their normalisers, and the backward pass of each part takes the joint output and
    normaliser, which makes its gradients exact (as in ring attention, arXiv 2310.01889). On CPUs that is twice as fast
    as a product per answer over keys that begin with the prompt's.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        prompt_key: torch.Tensor,
        prompt_value: torch.Tensor,
        answers: tuple[int, ...],
        scale: float | None,
    ) -> torch.Tensor:
        """Of the answers (1, heads, A, d) and the prompt (1, heads, P, d); A is the sum of `answers`."""
        answers = tuple(filter(None, answers))  # the product of no tokens is an arithmetic error in this kernel
        to_prompt, prompt_z = _flash(query, prompt_key, prompt_value, 0.0, False, scale=scale)
        split = zip(*(t.split(answers, dim=2) for t in (query, key, value)), strict=True)
        to_own, own_z = zip(*(_flash(*own, 0.0, True, scale=scale) for own in split), strict=True)
        z = torch.logaddexp(prompt_z, torch.cat(own_z, dim=2))
        share = torch.exp(prompt_z - z)[..., None]
        output = (share * to_prompt + (1 - share) * torch.cat(to_own, dim=2)).to(query.dtype)
        ctx.save_for_backward(query, key, value, prompt_key, prompt_value, output, z)
        ctx.answers, ctx.scale = answers, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, prompt_key, prompt_value, output, z = ctx.saved_tensors
        to_prompt = _flash_backward(grads[0], query, prompt_key, prompt_value, output, z, 0.0, False, scale=ctx.scale)
        rows = (t.split(ctx.answers, dim=2) for t in (grads[0], query, key, value, output, z))
        of_each = [_flash_backward(*own, 0.0, True, scale=ctx.scale) for own in zip(*rows, strict=True)]
        to_own = [torch.cat(parts, dim=2) for parts in zip(*of_each, strict=True)]
        return to_prompt[0] + to_own[0], to_own[1], to_own[2], to_prompt[1], to_prompt[2], None, None
