"""TTRL's settings. The defaults are those of the released script for AIME where possible; flow.py
lists the exceptions. Profiles hold departures."""

from __future__ import annotations

from pydantic import Field

from flows.settings.profile import Comparing, Dialogues, MethodSettings
from tasks.training.grpo import GRPOSettings


class Config(MethodSettings):
    """The settings of a run. It learns from questions without answers."""

    questions: str | None = Field(
        default=None,
        description=(
            'your questions: JSON lines, CSV or Parquet with a column "question", or'
            " hf:owner/name?split=...&revision=...; null: those of the built-in world"
        ),
    )
    dialogues: Dialogues = Dialogues()
    steps: int = Field(default=8, ge=1, description="updates per iteration")
    questions_per_step: int = Field(default=8, ge=1, description="questions drawn for each update")
    group_size: int = Field(
        default=64,
        ge=2,
        description="answers per question: they vote, and are compared with each other",
    )
    update: GRPOSettings = GRPOSettings(learning_rate=5e-7, beta=1e-3, optimizer_steps=8)
    match: Comparing = Comparing()
