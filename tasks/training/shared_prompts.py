# transformers types its registry of attention functions loosely.
# pyright: reportArgumentType=false, reportIndexIssue=false
"""Compute all answers to a prompt as one row: the prompt once, then every answer.

No answer attends to another. A packed row is the prompt without its last token, then for each
answer that token and the answer without its own last token: one position per prediction. An
answer's positions continue those of the prompt. Gradients of the prompt's keys and values add up
over the answers, so the update equals that of one row per answer. A prompt p q r with the answers
a b and x y z becomes

    input_ids     p q   r a   r x y
    shift_labels  . .   a b   x y z
    position_ids  0 1   2 3   2 3 4
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# prompt tokens from which, on CPUs, the answers attend to the prompt together: shorter ones gain
# only a tenth
LONG = 2048
_attend_plainly = ALL_ATTENTION_FUNCTIONS["sdpa"]
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class PackedRow:
    """Where prompt and answers lie in a packed row.

    `prefix` is the number of the prompt's tokens without its last, `answers` the number of tokens
    of each answer; `attended` counts the layers that used the row. It is not a dataclass: FSDP2
    would give every layer a copy, and nothing would be counted here.
    """

    def __init__(self, prefix: int, answers: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.answers = answers
        self.attended = 0

    @classmethod
    def of(cls, prompt_tokens: int, answer_tokens: Sequence[int]) -> PackedRow:
        """The row of one prompt and its answers, given their lengths in tokens."""
        return cls(prompt_tokens - 1, tuple(answer_tokens))

    def pack(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model's inputs for one packed row, from rows and labels (G, P + T) padded on the
        right.

        Labels are shifted: each stands where it is predicted.
        """
        n = self.prefix
        device = input_ids.device
        ids = [input_ids[0, :n]]
        targets = [torch.full((n,), -100, device=device, dtype=labels.dtype)]
        positions = [torch.arange(n, device=device)]
        for g, length in enumerate(self.answers):
            ids.append(input_ids[g, n : n + length])
            targets.append(labels[g, n + 1 : n + length + 1])
            positions.append(torch.arange(n, n + length, device=device))
        return {
            "input_ids": torch.cat(ids)[None],
            "shift_labels": torch.cat(targets)[None],
            "position_ids": torch.cat(positions)[None],
            # Never read: a 4-D mask keeps transformers from building one over all pairs of tokens.
            "attention_mask": torch.ones((1, 1, 1, 1), device=device, dtype=torch.bool),
        }

    def unpack(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Values at the packed row's positions, (1, S), as rows (G, width) of the answers' tokens.

        Places beyond an answer's end are 0.
        """
        lengths = torch.tensor(self.answers, device=values.device)
        is_token = torch.arange(width, device=values.device)[None] < lengths[:, None]
        return values.new_zeros(is_token.shape).masked_scatter(is_token, values[0, self.prefix :])


def understand_packed_rows() -> None:
    """Make transformers' attention ("sdpa") use the model's keyword argument `packed`."""
    ALL_ATTENTION_FUNCTIONS["sdpa"] = _attend


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    packed: PackedRow | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention with transformers' signature that also handles packed rows.

    Queries (1, heads, S, d), keys and values with fewer heads -> (1, S, heads, d).
    """
    if packed is None:
        return _attend_plainly(module, query, key, value, attention_mask, scaling=scaling, **others)
    packed.attended += 1
    # Rotary embeddings leave these in float32; autocast would round them, but not where a mask is a
    # bias object.
    query = query.to(value.dtype)
    key = key.to(value.dtype)
    # CUDA's flash kernel accepts fewer key heads than query heads; for the other kernels, key heads
    # are repeated.
    grouped = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
    if not grouped:
        key, value = (repeat_kv(t, query.shape[1] // t.shape[1]) for t in (key, value))
    parts = [query.shape[2] - packed.prefix - sum(packed.answers), packed.prefix, *packed.answers]
    assert parts[0] == 0, (
        f"a row of {query.shape[2]} tokens is not {packed.prefix} and {packed.answers}"
    )
    q, k, v = (t.split(parts[1:], dim=2) for t in (query, key, value))
    prompt_output = scaled_dot_product_attention(
        q[0], k[0], v[0], is_causal=True, scale=scaling, enable_gqa=grouped
    )
    outputs = [prompt_output]
    if query.device.type == "cpu" and packed.prefix >= LONG and any(packed.answers):
        own = (t[:, :, packed.prefix :] for t in (query, key, value))
        outputs.append(AttendTogether.apply(*own, k[0], v[0], packed.answers, scaling))
        return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None
    for own_q, own_k, own_v in zip(q[1:], k[1:], v[1:], strict=True):
        keys = torch.cat([k[0], own_k], dim=2)
        values = torch.cat([v[0], own_v], dim=2)
        mask = causal_lower_right(own_q.shape[2], keys.shape[2])
        answer_output = scaled_dot_product_attention(
            own_q, keys, values, attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
        outputs.append(answer_output)
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


class AttendTogether(torch.autograd.Function):
    """Attention of all answers to the prompt in one product, joined with that of each answer to
    itself.

    The two softmaxes are joined by their normalisers, and the backward pass of each part takes the
    joint output and normaliser, which makes its gradients exact (as in ring attention, arXiv
    2310.01889). On CPUs this is twice as fast as one product per answer over keys that begin with
    those of the prompt.
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
        """The answers' outputs, (1, heads, A, d), where A is the sum of `answers`.

        The first three tensors are the answers', (1, heads, A, d); the prompt's are (1, heads, P,
        d).
        """
        # a product over no tokens is an arithmetic error in this kernel
        answers = tuple(filter(None, answers))
        to_prompt, prompt_z = _flash(query, prompt_key, prompt_value, 0.0, False, scale=scale)
        split = zip(*(t.split(answers, dim=2) for t in (query, key, value)), strict=True)
        to_own, own_z = zip(*(_flash(*own, 0.0, True, scale=scale) for own in split), strict=True)
        z = torch.logaddexp(prompt_z, torch.cat(own_z, dim=2))
        share = torch.exp(prompt_z - z)[..., None]
        output = (share * to_prompt + (1 - share) * torch.cat(to_own, dim=2)).to(query.dtype)
        ctx.save_for_backward(query, key, value, prompt_key, prompt_value, output, z)
        ctx.answers = answers
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the five tensors of `forward`, given that of its output; None for the
        other arguments."""
        query, key, value, prompt_key, prompt_value, output, z = ctx.saved_tensors
        to_prompt = _flash_backward(
            grads[0], query, prompt_key, prompt_value, output, z, 0.0, False, scale=ctx.scale
        )
        rows = (t.split(ctx.answers, dim=2) for t in (grads[0], query, key, value, output, z))
        of_each = [
            _flash_backward(*own, 0.0, True, scale=ctx.scale) for own in zip(*rows, strict=True)
        ]
        to_own = [torch.cat(parts, dim=2) for parts in zip(*of_each, strict=True)]
        return (
            to_prompt[0] + to_own[0],
            to_own[1],
            to_own[2],
            to_prompt[1],
            to_prompt[2],
            None,
            None,
        )
