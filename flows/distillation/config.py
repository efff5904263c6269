"""Settings of on-policy distillation. `selfplay distil` takes the models and machines of a run."""

from __future__ import annotations

from pydantic import Field

from flows.settings.profile import MethodSettings
from tasks.training.grpo import GRPOSettings


class Config(MethodSettings):
    """The settings of a run. The student answers the prompts once per iteration."""

    source: str | None = Field(
        default=None, description="the run whose prompts are answered; required"
    )
    role: str | None = Field(
        default=None,
        description=(
            "role whose prompts are answered: those of the tables prompts.ROLE, including its"
            " later rounds; null: the only role that was asked"
        ),
    )
    teacher: str | None = Field(
        default=None,
        description=(
            "a run, for its last policy; RUN/PLAYER, if it trains several; an adapter's folder; or"
            " the folder or hub name of a model with the student's vocabulary; required"
        ),
    )
    held_out: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of the tasks whose prompts are only measured, not trained on",
    )
    prompts_per_iteration: int | None = Field(
        default=None, ge=1, description="prompts to draw in each iteration; null: all of them"
    )
    group_size: int = Field(default=1, ge=1, description="rollouts per prompt")
    rows_per_step: int = Field(default=64, ge=1, description="rows per optimizer step")
    iterations: int = Field(
        default=3,
        ge=1,
        description="number of iterations; each samples from the student and updates it once",
    )
    update: GRPOSettings = GRPOSettings(objective="distillation", beta=0.0, learning_rate=1e-6)
