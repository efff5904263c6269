"""Muon for the matrices, AdamW for everything else."""

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.05


def orthogonalise(matrix: Tensor) -> Tensor:
    """Approximately the nearest semi-orthogonal matrix, by Newton-Schulz iteration in fp32 (Jordan
    et al. 2024, "Muon")."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    if tall:
        return x.T
    return x


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum, with updates scaled to a root mean square of about 0.2,
    like AdamW's."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                momentum.lerp_(gradient, 1 - MOMENTUM)
                update = orthogonalise(gradient.lerp(momentum, MOMENTUM))
                parameter.mul_(1 - group["lr"] * WEIGHT_DECAY)
                parameter.add_(update, alpha=-0.2 * max(parameter.shape) ** 0.5 * group["lr"])


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in named if p.dim() != 2 or "embed" in name]
    return [
        Muon(matrices, lr=0.0),
        torch.optim.AdamW(others, lr=0.0, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True),
    ]
