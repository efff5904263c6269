"""The loss of on-policy distillation: reverse KL to a teacher, at the tokens the student sampled.

Only the log-probability of each sampled token is known of the teacher. So both distributions are
reduced to two outcomes: this token, or another one. TRL's ServerDistillationTrainer computes the
same loss (`beta=1`, `loss_top_k=1`, with the tail). By the data-processing inequality it is at most
the reverse KL over the vocabulary, and it is 0 only where both give the token the same probability.
"""

from __future__ import annotations

import torch

# TRL's bound: the probability of the other tokens is at least 1e-7, so that its logarithm is finite
LEAST_OF_OTHERS = 1e-7


def reverse_kl(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(student || teacher) of "this token or another", in nats.

    `student` and `teacher` are natural log-probabilities of the sampled tokens, of equal shapes.

    >>> half, quarter = torch.tensor([0.5, 0.25]).log()
    >>> round(float(reverse_kl(half, quarter)), 4)  # .5 log(.5 / .25) + .5 log(.5 / .75)
    0.1438
    """
    student_others = log_of_others(student)
    teacher_others = log_of_others(teacher)
    return student.exp() * (student - teacher) + student_others.exp() * (
        student_others - teacher_others
    )


def log_of_others(logprobs: torch.Tensor) -> torch.Tensor:
    """log(1 - p) given log p, in nats; any shape."""
    return torch.log(-torch.expm1(logprobs.clamp(max=-LEAST_OF_OTHERS)))
