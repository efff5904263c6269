"""The loss of preferences: DPO (Rafailov et al. 2023, eq. 7), TRL's loss type "sigmoid"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch.nn.functional import logsigmoid


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs: their number, margins, margins above 0, and the rewards of both replies.

    `values` has shape (5,).
    """

    values: torch.Tensor

    @classmethod
    def zero(cls, device: torch.device) -> Self:
        """No pairs."""
        return cls(torch.zeros(5, device=device))

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(self.values + other.values)

    @property
    def margin(self) -> float | None:
        """The mean margin, in nats; None without pairs."""
        return self._mean(1)

    @property
    def preferred(self) -> float | None:
        """The share of pairs with a margin above 0; None without pairs."""
        return self._mean(2)

    @property
    def chosen_reward(self) -> float | None:
        """The mean of beta times the chosen replies' log-ratios, in nats; None without pairs."""
        return self._mean(3)

    @property
    def rejected_reward(self) -> float | None:
        """The same for the rejected replies."""
        return self._mean(4)

    def _mean(self, position: int) -> float | None:
        number = float(self.values[0])
        if not number:
            return None
        return float(self.values[position]) / number


def preference_loss(
    logps: torch.Tensor,
    reference_logps: torch.Tensor,
    *,
    sampled: torch.Tensor,
    is_real: torch.Tensor,
    beta: float,
) -> tuple[torch.Tensor, PairSums]:
    """The sum of -log sigmoid(m) over the real pairs, and their sums.

    Rows 0 and 1 are the chosen and the rejected reply of the first pair. `logps` and
    `reference_logps` are natural log-probabilities of tokens, (B, T); `sampled` marks the tokens
    that count, (B, T); `is_real` marks the pairs that are not padding, (B / 2,). The margin m is
    beta * ((log p - log p_ref) of the chosen reply - the same of the rejected one), in nats.
    """
    rewards = beta * ((logps - reference_logps) * sampled).sum(dim=1)
    chosen = rewards[::2] * is_real
    rejected = rewards[1::2] * is_real
    margin = chosen - rejected
    loss = (-logsigmoid(margin) * is_real).sum()
    with torch.no_grad():
        sums = torch.stack(
            [is_real.sum(), margin.sum(), (margin > 0).sum(), chosen.sum(), rejected.sum()]
        )
    return loss, PairSums(sums.float())
