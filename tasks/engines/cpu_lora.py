"""LoRA on CPUs: one product for all tokens of an adapter.

vLLM 0.32's own CPU kernels gather A and B once for every token, in float32, so each multiply-add
costs a load; and they apply the batch's last adapter to rows without an adapter. `install` replaces
them with `GroupedProducts`, unless vLLM has fixed both defects: `upstream_is_fit` tries its kernels
on a few tokens.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.lora.ops.torch_ops import bgmv_expand
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform


class GroupedProducts(PunicaWrapperCPU):
    """Adds scale * (x A^T) B^T to every row of an adapter, and nothing to rows without one.

    Axes: T tokens, I inputs, O outputs, R rank, L adapters. Weights are stacked: A is [L, 1, R, I],
    B is [L, 1, O, R]. Dtypes are those of vLLM's kernels: x A^T in its buffer's dtype (float32),
    the rest in the outputs' dtype.
    """

    _rows_of_tokens: list[tuple[int, Any]] = []  # noqa: RUF012  (replaced, never changed)
    _rows_of_logits: list[tuple[int, Any]] = []  # noqa: RUF012

    def update_metadata(self, *args: Any, **kwargs: Any) -> None:
        super().update_metadata(*args, **kwargs)
        self._rows_of_tokens = list(rows_by_adapter(self.token_lora_indices))
        self._rows_of_logits = list(rows_by_adapter(self.sampler_indices))

    def _rows(self, num_tokens: int) -> list[tuple[int, Any]]:
        """The adapters, each with its rows among the tokens of this step."""
        if num_tokens == self.indices_len[0]:
            return self._rows_of_tokens
        return list(rows_by_adapter(self.token_lora_indices[:num_tokens]))

    def _apply_shrink(
        self, y: torch.Tensor, x: torch.Tensor, w_t_all: torch.Tensor, scale: float
    ) -> None:
        y.zero_()
        shrink(y, x, w_t_all, scale, self._rows(len(x)))

    def _apply_expand(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        w_t_all: torch.Tensor,
        y_offset: int,
        y_slice_size: int,
        add_inputs: bool = True,
    ) -> None:
        part = y[:, y_offset : y_offset + y_slice_size]
        if not add_inputs:
            part.zero_()
        expand(part, x, w_t_all, self._rows(len(x)))

    def add_lora_embedding(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        add_inputs: bool = True,
        **kwargs: Any,
    ) -> None:
        expand(y, x, lora_b_stacked, self._rows(len(x)))

    def add_lora_logits(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        scale: float,
        *,
        buffer: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        y = y.view(-1, y.shape[-1])
        x = x.view(-1, x.shape[-1])
        inner = torch.zeros(len(x), lora_b_stacked.shape[-1], dtype=torch.float32)
        shrink(inner, x, lora_a_stacked, scale, self._rows_of_logits)
        expand(y, inner, lora_b_stacked, self._rows_of_logits)


def rows_by_adapter(index_T: torch.Tensor) -> Iterator[tuple[int, Any]]:
    """Each adapter and its rows; a slice if one adapter has all rows. -1 stands for no adapter."""
    used = torch.unique(index_T).tolist()
    for adapter in used:
        if adapter >= 0:
            if len(used) == 1:
                yield adapter, slice(None)
            else:
                yield adapter, torch.nonzero(index_T == adapter)[:, 0]


def shrink(
    y: torch.Tensor, x: torch.Tensor, a: torch.Tensor, scale: float, rows: list[tuple[int, Any]]
) -> None:
    """y[T, :R] = scale * x A^T in the dtype of y, for the given rows."""
    for adapter, own in rows:
        weight = _of(a, adapter).to(y.dtype)
        y[own, : len(weight)] = scale * (x[own].to(y.dtype) @ weight.T)


def expand(y: torch.Tensor, x: torch.Tensor, b: torch.Tensor, rows: list[tuple[int, Any]]) -> None:
    """y[T, :O] += x B^T in the dtype of y, for the given rows.

    A model may pad y, and an adapter may pad B.
    """
    for adapter, own in rows:
        weight = _of(b, adapter).to(y.dtype)[: y.shape[1]]
        y[own, : len(weight)] += x[own].to(y.dtype) @ weight.T


def _of(weights: torch.Tensor, adapter: int) -> torch.Tensor:
    """One adapter's matrix among those stacked, [L, 1, rows, columns] or [L, rows, columns]."""
    if weights.dim() == 4:
        return weights[adapter].squeeze(0)
    return weights[adapter]


class _Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.numel = max(self.numel, made.numel())
        return made


def upstream_is_fit() -> bool:
    """Whether vLLM's own kernel is fixed.

    A fixed kernel does not copy the weights for every token, and adds nothing to rows without an
    adapter.
    """
    tokens = 8
    rank = 4
    outputs = 16
    y = torch.zeros(tokens, outputs)
    x = torch.ones(tokens, rank)
    b = torch.ones(2, 1, outputs, rank)
    with _Largest() as largest:
        bgmv_expand(x, b, y, torch.full((tokens,), -1))
    return largest.numel < tokens * outputs * rank and not y.any()


def install() -> None:
    """Make vLLM use `GroupedProducts` in this process. Call it before creating an engine."""
    if not upstream_is_fit():
        name = f"{__name__}.{GroupedProducts.__name__}"
        platform: Any = type(current_platform)
        platform.get_punica_wrapper = classmethod(lambda cls: name)
