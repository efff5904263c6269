"""Copies of a GPU's tensors in pinned memory, many to a block.

PyTorch rounds every pinned allocation up to a power of two: the state of an 8B model, copied tensor
by tensor, would take 1.36 times its size. Blocks whose sizes are powers of two, each filled with
tensors, waste at most 2 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

LARGEST = 1 << 32  # bytes of a block, unless one tensor needs more
ALIGNED = 64  # bytes: an alignment that suits any type


@dataclass(frozen=True)
class Layout:
    """The blocks' sizes in bytes, and each tensor's place: the number of its block, and its offset
    there."""

    blocks: list[int]
    places: list[tuple[int, int]]

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Layout:
        """Place each tensor in the first block with room, given the tensors' sizes in bytes.

        The size of a new block is the larger of two powers of two: the bytes not placed yet,
        rounded down, and the tensor's size, rounded up.

        >>> Layout.of([640, 64, 400])
        Layout(blocks=[1024, 512], places=[(0, 0), (0, 640), (1, 0)])
        """
        blocks: list[int] = []
        used: list[int] = []
        places: list[tuple[int, int]] = []
        padded = [max(-(-size // ALIGNED), 1) * ALIGNED for size in sizes]
        left = sum(padded)
        for size in padded:
            number = next(
                (i for i, block in enumerate(blocks) if block - used[i] >= size), len(blocks)
            )
            if number == len(blocks):
                blocks.append(
                    max(1 << (min(left, LARGEST).bit_length() - 1), 1 << (size - 1).bit_length())
                )
                used.append(0)
            places.append((number, used[number]))
            used[number] += size
            left -= size
        return cls(blocks, places)


def on_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Pinned copies of the tensors on a GPU; other tensors as they are."""
    moved = iter(copies([tensor for tensor in tensors if tensor.is_cuda]))
    return [next(moved) if tensor.is_cuda else tensor for tensor in tensors]


def copies(tensors: Sequence[torch.Tensor], pin: bool = True) -> list[torch.Tensor]:
    """Contiguous copies on the host, which share blocks: `clone` one to save it alone."""
    layout = Layout.of([tensor.nbytes for tensor in tensors])
    blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=pin) for size in layout.blocks]
    return [
        blocks[number][start : start + tensor.nbytes]
        .view(tensor.dtype)
        .view(tensor.shape)
        .copy_(tensor)
        for tensor, (number, start) in zip(tensors, layout.places, strict=True)
    ]


def bytes_to_allocate(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes that `on_host` would newly allocate: PyTorch keeps freed blocks and reuses them."""
    sizes = [tensor.nbytes for tensor in tensors if tensor.is_cuda]
    if not sizes:
        return 0
    stats = torch.cuda.host_memory_stats()
    kept = stats["allocated_bytes.current"] - stats["active_bytes.current"]
    return max(sum(Layout.of(sizes).blocks) - kept, 0)
