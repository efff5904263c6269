"""What a trainer keeps in pinned memory takes hardly more than its size, and its files hold no
other tensor's bytes."""

from __future__ import annotations

import torch

from tasks.training.pinned import ALIGNED, Layout, copies
from tasks.training.state import Share


def rounded(size: int) -> int:
    """As PyTorch's allocator of pinned memory does (`PowerOf2Ceil`)."""
    return 1 << (size - 1).bit_length()


def shares_of_qwen3_8b() -> list[int]:
    """Bytes of one of six processes: float32 weights, then two moments and a step count for
    each."""
    hidden = 4096
    layer = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (128, 1), (128, 1)]
    layer += [(12288, 4096), (12288, 4096), (4096, 12288), (4096, 1), (4096, 1)]
    shapes = [(151936, hidden), *(layer * 36), (hidden, 1), (151936, hidden)]
    weights = [4 * -(-rows // 6) * columns for rows, columns in shapes]
    return weights + [size for weight in weights for size in (4, weight, weight)]


def test_the_state_of_an_8b_model_takes_two_percent_more_than_its_size():
    """Copied tensor by tensor it would take 36 % more."""
    sizes = shares_of_qwen3_8b()
    layout = Layout.of(sizes)
    assert all(block == rounded(block) for block in layout.blocks)
    assert sum(sizes) < sum(layout.blocks) < 1.02 * sum(sizes)
    assert sum(map(rounded, sizes)) > 1.35 * sum(sizes)


def test_tensors_of_a_block_do_not_overlap():
    sizes = [0, 4, 700, 64, 3, 5000, 1, 130, 0]
    layout = Layout.of(sizes)
    taken: dict[int, int] = {}
    for size, (number, start) in sorted(
        zip(sizes, layout.places, strict=True), key=lambda item: item[1]
    ):
        assert start >= taken.get(number, 0) and start % ALIGNED == 0
        taken[number] = start + size
        assert taken[number] <= layout.blocks[number]


def test_copies_have_the_values_and_types_of_the_tensors():
    half = torch.ones(3, dtype=torch.bfloat16)
    given = [torch.arange(6.0).view(2, 3).t(), torch.tensor(7.0), torch.empty(0, 4), half]
    made = copies(given, pin=False)
    assert all(a.equal(b) and a.dtype == b.dtype for a, b in zip(made, given, strict=True))
    assert len({tensor.untyped_storage().data_ptr() for tensor in made}) < len(given)


def test_a_state_whose_tensors_share_memory_is_written_like_any_other(tmp_path):
    alone = [torch.randn(64, 64) for _ in range(4)]
    for name, values in {"alone": alone, "shared": copies(alone, pin=False)}.items():
        share = Share(
            values[:2], [{"exp_avg": value} for value in values[2:]], [None, None], [{"lr": 0.1}]
        )
        share.save(tmp_path / name, writes=True, weights=True)
    for file in ("optimizer.pt", "weights.pt"):
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "shared" / file).read_bytes()
