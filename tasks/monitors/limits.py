"""The limits of the monitors' metrics.

They stand apart from `tasks.monitors.monitor` so that a config loads without its libraries.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """The limit of each metric, as `max_<metric>` or `min_<metric>`; with None the metric is stored
    and has no limit.

    `max_` limits the absolute value. A method with metrics of its own adds their limits in a
    subclass.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if wrong := [name for name in cls.model_fields if not name.startswith(("max_", "min_"))]:
            raise TypeError(f"{wrong[0]} limits no metric: begin with max_ or min_")

    max_canary_error: float | None = Field(
        default=None, ge=0, le=1, description="answers of known verdict judged wrongly"
    )
    max_canary_rise: float | None = Field(
        default=0.15, ge=0, le=1, description="rise of the same since the first iteration"
    )
    max_judge_minus_oracle: float | None = Field(
        default=0.05, ge=0, le=1, description="mean verdict minus mean truth"
    )
    max_judge_error: float | None = Field(
        default=None, ge=0, le=1, description="verdicts that are not the truth"
    )
    max_vote_minus_oracle: float | None = Field(
        default=None, ge=0, le=1, description="mean vote minus mean truth"
    )
    max_vote_error: float | None = Field(
        default=None, ge=0, le=1, description="votes that are not the truth"
    )
    max_reward_minus_oracle: float | None = Field(
        default=None, ge=0, description="mean score of answers minus the truth"
    )
    max_reward_error: float | None = Field(
        default=None, ge=0, description="distance of an answer's score from the truth"
    )
    max_reward_of_wrong: float | None = Field(
        default=None, ge=0, description="mean score of wrong answers"
    )
    max_reference_error: float | None = Field(
        default=0.3, ge=0, le=1, description="tasks whose own answer is not the truth"
    )
    max_label_error: float | None = Field(
        default=0.3, ge=0, le=1, description="labels that are not the truth"
    )
    max_mark_error: float | None = Field(
        default=None, ge=0, le=1, description="marks on the wrong side of the truth"
    )
    max_top_mark: float | None = Field(
        default=0.95, ge=0, le=1, description="marks that are the highest possible"
    )
    max_gate_leak: float | None = Field(
        default=0.1, ge=0, le=1, description="tasks let through that a second audit rejects"
    )
    max_malformed: float | None = Field(
        default=0.8,
        ge=0,
        le=1,
        description="replies of a role that could not be read (a small model begins at 0.6)",
    )
    max_engine_failure: float | None = Field(
        default=0.25, ge=0, le=1, description="replies that the engine did not give"
    )
    max_over_limit: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description="prompts with more tokens than the method allows, which are not sampled from",
    )
    min_kept: float | None = Field(
        default=None, ge=0, le=1, description="candidates that a filter let through"
    )
    min_kept_ratio: float | None = Field(
        default=0.05,
        ge=0,
        description="the same over the first iteration's (0.2 after two iterations is healthy)",
    )
    max_flat_group: float | None = Field(
        default=0.95, ge=0, le=1, description="groups whose rewards are all equal"
    )
    max_untrained: float | None = Field(
        default=5, ge=0, description="steps of a player in a row without any advantage"
    )
    max_unscorable: float | None = Field(
        default=0.5, ge=0, le=1, description="rollouts without a reward"
    )
    max_largest_part: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of a reward's variance that is due to one of its parts",
    )
    max_reply_ratio: float | None = Field(
        default=3.0,
        ge=0,
        description="length of a role's replies, relative to that at its first update",
    )
    min_reply_ratio: float | None = Field(
        default=0.2,
        ge=0,
        description="the same (0.33 is healthy if a small model learns to be brief)",
    )
    max_repeat: float | None = Field(
        default=None, ge=0, le=1, description="tasks like an earlier one of their batch"
    )
    max_repeat_of_earlier: float | None = Field(
        default=0.5, ge=0, le=1, description="tasks that an earlier iteration had word for word"
    )
    max_empty: float | None = Field(
        default=0.3, ge=0, le=1, description="tasks without three different words"
    )
    max_copy: float | None = Field(
        default=0.5, ge=0, le=1, description="tasks equal to an earlier one of their batch"
    )
    max_falls: float | None = Field(
        default=1, ge=0, description="iterations in which a held-out score fell while rewards rose"
    )
    max_narrowings: float | None = Field(
        default=1,
        ge=0,
        description="iterations in which the best of several answers fell while the score rose",
    )
    max_sampler_kl: float | None = Field(
        default=0.01,
        ge=0,
        description="KL between trainer and engine before an update, nats a token (k3)",
    )
    max_policy_stale: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description="1: the engine scores trained rows as before the update, not as the trainer",
    )
    max_ratio_gap: float | None = Field(
        default=None, ge=0, description="mean of rho - 1 at an update's first step"
    )
