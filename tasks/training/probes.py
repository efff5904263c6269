"""The rows that the trainer scores before and after an update, to compare engines with it."""

from __future__ import annotations

import numpy as np

from tasks.training.datums import Datums

MOST = 8


def probed_rows(datums: Datums, temperature: float) -> list[int]:
    """Rows from the shorter half, spread over its lengths; the same in all processes.

    Empty if rollouts were sampled at a `temperature` other than 1, since engines score at 1.
    """
    if temperature != 1:
        return []
    lengths = np.where(datums.num_tokens > 0, datums.lengths, np.iinfo(np.int64).max)
    sampled = np.argsort(lengths, kind="stable")[: int((datums.num_tokens > 0).sum())]
    shorter = sampled[: max(MOST, len(sampled) // 2)]
    rows = shorter[np.unique(np.linspace(0, len(shorter) - 1, min(MOST, len(shorter))).astype(int))]
    return rows.tolist()
