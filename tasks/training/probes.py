"""A trained policy's scores of rows it was trained on, to compare engines with the trainer."""

from __future__ import annotations

import numpy as np

from tasks.training.datums import Datums, collate
from tasks.training.grpo import RowScore
from tasks.training.stored_rollouts import StoredRolloutsTrainer

MOST = 8


def probe(trainer: StoredRolloutsTrainer, datums: Datums) -> tuple[RowScore, ...]:
    """Score rows of the shorter half, spread over its lengths; all processes score the same rows.

    Empty if rollouts were sampled at a temperature other than 1: engines score at 1.
    """
    if trainer.temperature != 1:
        return ()
    lengths = np.where(datums.num_tokens > 0, datums.lengths, np.iinfo(np.int64).max)
    sampled = np.argsort(lengths, kind="stable")[: int((datums.num_tokens > 0).sum())]
    shorter = sampled[: max(MOST, len(sampled) // 2)]
    rows = shorter[np.unique(np.linspace(0, len(shorter) - 1, min(MOST, len(shorter))).astype(int))]
    probed = []
    for row in rows.tolist():
        logps = trainer.policy_logps(collate(datums, [row], row))
        probed.append(RowScore(row=row, logprob=float(logps.double().sum())))
    return tuple(probed)
