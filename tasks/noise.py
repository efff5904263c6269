"""The settings of `tasks.erring`, kept apart so that a config loads without its libraries."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Shape = Literal["none", "independent", "task", "mistake", "length"]


class VerdictErrors(BaseModel):
    """The errors of the verdicts that a policy is trained by; only in a built-in world.

    Shapes, each with what happens in `share` of the cases:
        none: verdicts are the method's own.
        independent: the true verdict on an answer is flipped, whatever the others are.
        task: all true verdicts on a task's answers are flipped.
        mistake: the policy's most frequent wrong answer to a task passes, and right ones fail: as
            if the reference were that mistake.
        length: an answer passes if its reply is longer than the median of its group.

    Where answers have to meet criteria, each answer has several verdicts, which `independent` and
    `length` change one by one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Shape = Field(
        default="none",
        description="which verdicts are wrong: none, independent, task, mistake or length",
    )
    share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of answers or tasks with errors; 0 leaves the true verdicts",
    )
