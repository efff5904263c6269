"""Settings of on-policy distillation. `selfplay distil` takes models and machines of a run."""

from __future__ import annotations

from pydantic import Field

from flows.settings.profile import MethodSettings
from tasks.training.grpo import GRPOSettings


class Config(MethodSettings):
    """The settings of a run. In every iteration the student answers the prompts once more."""

    source: str | None = Field(
        default=None, description="the run whose prompts are answered; it has to be given"
    )
    role: str | None = Field(
        default=None,
        description=(
            "whose prompts: those of the tables prompts.ROLE, also of its rounds; null: the only"
            " role that was asked"
        ),
    )
    teacher: str | None = Field(
        default=None,
        description=(
            "a run, whose last policy it is; RUN/PLAYER, if it trains several; an adapter's folder;"
            " or the folder or hub name of a model with the student's tokens; it has to be given"
        ),
    )
    held_out: float = Field(
        default=0.1, ge=0, lt=1, description="share of the tasks whose prompts are only measured"
    )
    prompts_per_iteration: int | None = Field(
        default=None, ge=1, description="prompts to draw for each iteration; null: all of them"
    )
    group_size: int = Field(default=1, ge=1, description="rollouts of each prompt")
    rows_per_step: int = Field(default=64, ge=1, description="of one optimizer step")
    iterations: int = Field(
        default=3, ge=1, description="each samples from the student, and updates it once"
    )
    update: GRPOSettings = GRPOSettings(objective="distillation", beta=0.0, learning_rate=1e-6)
