"""Rows that an update refuses, each for its first fault, and rows exactly at the bounds, which
it accepts."""

import numpy as np
import pytest

from tasks.training.datums import Datums, check_datums

FINE = {
    "prompt": [1, 2],
    "completion": [3, 9],
    "mask": [0, 1],
    "logprobs": [0.0, -0.5],
    "advantage": 1.0,
}


def datums(**changes) -> Datums:
    """Two rows, the second one changed."""
    rows = [FINE, {**FINE, **changes}]

    def arrays(name: str, kind: type) -> list[np.ndarray]:
        return [np.asarray(r[name], kind) for r in rows]

    return Datums(
        rollout_ids=["a", "b"],
        prompts=arrays("prompt", np.int64),
        completions=arrays("completion", np.int64),
        masks=arrays("mask", np.int8),
        logprobs=arrays("logprobs", np.float32),
        advantages=np.array([r["advantage"] for r in rows]),
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"mask": [1]}, "2 completion tokens, 1 loss_mask, 2 logprobs"),
        ({"logprobs": [-0.5]}, "2 completion tokens, 2 loss_mask, 1 logprobs"),
        ({"prompt": [1, 2, 3]}, "5 tokens are more than the model's context of 4"),
        ({"completion": [3, 10]}, "token id 10 is outside the vocabulary of 10"),
        ({"completion": [-1, 3]}, "token id -1 is outside the vocabulary of 10"),
        ({"prompt": [12, 2]}, "token id 12 is outside"),
        ({"mask": [2, 1]}, "loss_mask holds something other than 0 and 1"),
        ({"mask": [-1, 1]}, "loss_mask holds something other than 0 and 1"),
        ({"logprobs": [0.0, 0.25]}, "logprobs must be finite"),
        ({"logprobs": [0.0, 0.0011]}, "logprobs must be finite"),
        ({"logprobs": [float("nan"), -0.5]}, "logprobs must be finite"),
        ({"logprobs": [0.0, float("-inf")]}, "logprobs must be finite"),
        ({"advantage": float("nan")}, "advantage is nan"),
        ({"advantage": float("inf")}, "advantage is inf"),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_refused_by_its_rollout(changes, why):
    with pytest.raises(ValueError, match=r"^rollout b \(row 1\): ") as refused:
        check_datums(datums(**changes), vocab_size=10, max_tokens=4)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"completion": [0, 9]},
        {"logprobs": [0.5, 0.0009]},
        {"mask": [0, 0]},
        {"advantage": 0.0},
        {"advantage": -9.0},
    ],
)
def test_a_row_at_the_bounds_is_taken(changes):
    """Rounding can put log-probabilities slightly above 0; those of tokens that were not sampled
    do not count."""
    check_datums(datums(**changes), vocab_size=10, max_tokens=4)


def test_rows_without_a_single_sampled_token_are_refused():
    nothing = datums(mask=[0, 0])
    nothing.masks[0][:] = 0
    with pytest.raises(ValueError, match="loss_mask is 0 everywhere"):
        check_datums(nothing, vocab_size=10, max_tokens=4)
