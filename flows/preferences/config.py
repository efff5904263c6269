"""Settings of updates on preferences. `selfplay tune` takes the models and machines of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from flows.settings.profile import MethodSettings
from tasks.training.grpo import GRPOSettings


class Config(MethodSettings):
    """The settings of a run. Every iteration is one epoch over the pairs."""

    source: str | None = Field(
        default=None, description="the run whose replies are compared; required"
    )
    on: Literal["labels", "rewards"] = Field(
        default="labels",
        description=(
            'what decides which reply is better: people\'s "labels", given in the viewer, or'
            ' "rewards"'
        ),
    )
    role: str | None = Field(
        default=None,
        description=(
            "role whose replies are compared: those of the tables rollouts.ROLE, including its"
            " later rounds; null: the only role with opinions"
        ),
    )
    pairs_per_prompt: int = Field(
        default=4, ge=1, description="maximum number of pairs of replies per prompt"
    )
    held_out: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="share of the tasks whose pairs are only measured, not trained on",
    )
    pairs_per_step: int = Field(default=16, ge=1, description="pairs per optimizer step")
    iterations: int = Field(default=1, ge=1, description="epochs over the pairs")
    update: GRPOSettings = GRPOSettings(objective="preference", beta=0.1, learning_rate=1e-6)
