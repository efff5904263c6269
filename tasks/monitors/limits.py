"""The limits of the monitors' metrics, kept apart from `tasks.monitors.monitor` so that a config
loads without its libraries.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """The limit of each metric, as `max_<metric>` or `min_<metric>`; with None the metric is stored
    and has no limit.

    `max_` limits the absolute value. A method with its own metrics adds their limits in a subclass.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if wrong := [name for name in cls.model_fields if not name.startswith(("max_", "min_"))]:
            raise TypeError(f"{wrong[0]} limits no metric: begin with max_ or min_")

    max_canary_error: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=(
            "maximum share of canaries (answers whose correct verdict is known) that are judged"
            " wrongly"
        ),
    )
    max_canary_rise: float | None = Field(
        default=0.15,
        ge=0,
        le=1,
        description=(
            "maximum rise, since the first iteration, of the share of canaries that are judged"
            " wrongly"
        ),
    )
    max_judge_minus_oracle: float | None = Field(
        default=0.05,
        ge=0,
        le=1,
        description=(
            "maximum distance between the mean verdict and the mean truth, both from 0 to 1"
        ),
    )
    max_judge_error: float | None = Field(
        default=None, ge=0, le=1, description="maximum share of verdicts that differ from the truth"
    )
    max_vote_minus_oracle: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="maximum distance between the mean vote and the mean truth, both from 0 to 1",
    )
    max_vote_error: float | None = Field(
        default=None, ge=0, le=1, description="maximum share of votes that differ from the truth"
    )
    max_reward_minus_oracle: float | None = Field(
        default=None,
        ge=0,
        description=(
            "maximum distance between the mean score of answers and the mean truth (1 if right,"
            " else 0)"
        ),
    )
    max_reward_error: float | None = Field(
        default=None,
        ge=0,
        description=(
            "maximum mean distance between an answer's score and the truth (1 if right, else 0)"
        ),
    )
    max_reward_of_wrong: float | None = Field(
        default=None, ge=0, description="maximum mean score of wrong answers"
    )
    max_reference_error: float | None = Field(
        default=0.3,
        ge=0,
        le=1,
        description="maximum share of tasks whose reference answer is wrong",
    )
    max_label_error: float | None = Field(
        default=0.3, ge=0, le=1, description="maximum share of labels that are wrong"
    )
    max_same_label: float | None = Field(
        default=0.8,
        ge=0,
        le=1,
        description=(
            "maximum share of a step's questions with the same label (the majority of their"
            " answers)"
        ),
    )
    max_mark_error: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="maximum share of marks on the wrong side of the truth",
    )
    max_top_mark: float | None = Field(
        default=0.95,
        ge=0,
        le=1,
        description="maximum share of marks that are the highest possible",
    )
    max_gate_leak: float | None = Field(
        default=0.1,
        ge=0,
        le=1,
        description="maximum share of passed tasks that a second audit rejects",
    )
    max_malformed: float | None = Field(
        default=0.8,
        ge=0,
        le=1,
        description=(
            "maximum share of a role's replies that cannot be read (a small model begins at 0.6)"
        ),
    )
    max_engine_failure: float | None = Field(
        default=0.25,
        ge=0,
        le=1,
        description="maximum share of replies that the engine failed to sample",
    )
    max_over_limit: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "maximum share of prompts with more tokens than the method or the engine's context"
            " allows; they are not sampled from"
        ),
    )
    min_kept: float | None = Field(
        default=None, ge=0, le=1, description="minimum share of candidates that pass a filter"
    )
    min_kept_ratio: float | None = Field(
        default=0.05,
        ge=0,
        description=(
            "minimum ratio of the share that passes a filter to that of the first iteration (0.2"
            " after two iterations is normal)"
        ),
    )
    max_flat_group: float | None = Field(
        default=0.95, ge=0, le=1, description="maximum share of groups whose rewards are all equal"
    )
    max_untrained: float | None = Field(
        default=5,
        ge=0,
        description="maximum number of consecutive steps in which a player has no advantage",
    )
    max_unscorable: float | None = Field(
        default=0.5, ge=0, le=1, description="maximum share of rollouts without a reward"
    )
    max_largest_part: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="maximum share of a reward's variance that is due to one of its parts",
    )
    max_reply_ratio: float | None = Field(
        default=3.0,
        ge=0,
        description=(
            "maximum ratio of the mean length of a role's replies to that at its first update"
        ),
    )
    min_reply_ratio: float | None = Field(
        default=0.2,
        ge=0,
        description=(
            "minimum ratio of the mean length of a role's replies to that at its first update"
            " (0.33 is normal if a small model learns to be brief)"
        ),
    )
    max_repeat_of_earlier: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description="maximum share of tasks that repeat one of an earlier iteration word for word",
    )
    max_empty: float | None = Field(
        default=0.3,
        ge=0,
        le=1,
        description="maximum share of tasks with fewer than three different words",
    )
    max_copy: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description="maximum share of tasks equal to an earlier one of their batch",
    )
    max_falls: float | None = Field(
        default=0,
        ge=0,
        description=(
            "maximum number of iterations whose held-out score is more than three standard errors"
            " below the best earlier one"
        ),
    )
    max_narrowings: float | None = Field(
        default=1,
        ge=0,
        description=(
            "maximum number of iterations in which the best of several answers fell while the"
            " score rose"
        ),
    )
    max_sampler_kl: float | None = Field(
        default=0.05,
        ge=0,
        description=(
            "maximum KL between trainer and engine before an update, in nats per token (k3)"
        ),
    )
    max_policy_stale: float | None = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "below 1: stop if the engine's scores of trained rows are those from before the"
            " update, not the trainer's"
        ),
    )
    max_ratio_gap: float | None = Field(
        default=None,
        ge=0,
        description="maximum distance of the mean of rho from 1 at an update's first step",
    )
