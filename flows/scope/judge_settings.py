"""Settings of the Judge: gates, rubrics, grading. The defaults are the paper's (appendices F and
G)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from flows.settings.profile import Settings

PRIORITIES = ("critical", "important", "bonus")  # from the highest to the lowest


class JudgeSettings(Settings):
    """Gates, rubrics, grading, and canaries for the grader."""

    quality_gates: bool = Field(
        default=True, description="false is the ablation: only the safety gate remains"
    )
    gates: tuple[Literal["entity", "source", "safety"], ...] = Field(
        default=("entity", "source", "safety"),
        description=(
            "gates decided by the Judge; the paper has no safety gate and calls that a limitation"
        ),
    )
    rule_gates: tuple[Literal["repeats", "grammar"], ...] = Field(
        default=(), description="additional gates decided by rules"
    )
    min_criteria: int = Field(
        default=3, ge=1, description="a rubric with fewer criteria is malformed"
    )
    max_criteria: int = Field(
        default=10, ge=1, description="a rubric with more criteria is malformed"
    )
    priority_weights: dict[str, float] = Field(
        default={"critical": 1.0, "important": 1.0, "bonus": 1.0},
        description="weights of criteria in a grade, by priority",
    )
    gate_tokens: int = Field(
        default=256,
        ge=1,
        description="maximum number of tokens per gate verdict; use 1,024 for reasoning models",
    )
    rubric_tokens: int = Field(
        default=8192, ge=1, description="maximum number of tokens per rubric"
    )
    screening_temperature: float | None = Field(
        default=None,
        ge=0,
        description=(
            "temperature of gates and rubrics; null: 0, or the grading temperature for reasoning"
            " models, which repeat themselves when greedy"
        ),
    )
    grading_tokens: int = Field(
        default=16384, ge=1, description="maximum number of tokens per grading verdict"
    )
    grading_temperature: float = Field(
        default=0.6, ge=0, description="temperature of grading verdicts"
    )
    graded_answer_tokens: int = Field(
        default=2048, ge=1, description="maximum number of answer tokens that the grader sees"
    )
    ungraded_answer_tokens: int = Field(
        default=4096,
        ge=1,
        description="longer answers are not graded, and earn no grade (L * g = 0)",
    )
    evidence_document_tokens: int = Field(
        default=1024,
        ge=1,
        description="maximum number of tokens of each document shown to the rubric writer",
    )
    min_coverage: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="minimum share of criteria with a verdict for a rollout to count",
    )
    canaries: int = Field(
        default=256,
        ge=0,
        description=(
            "number of answers with known verdicts, graded before each stage's first update; 0:"
            " none"
        ),
    )

    def screens_at(self, reasoning: bool) -> float:
        """The temperature at which gates and rubrics are sampled."""
        if self.screening_temperature is not None:
            return self.screening_temperature
        if reasoning:
            return self.grading_temperature
        return 0.0

    @property
    def applied_gates(self) -> tuple[str, ...]:
        """The gates in use: the ablation drops the quality gates; safety is not one of them."""
        return tuple(gate for gate in self.gates if self.quality_gates or gate == "safety")

    @model_validator(mode="after")
    def _rubrics_can_be_scored(self) -> Self:
        if self.min_criteria > self.max_criteria:
            raise ValueError(
                f"min_criteria {self.min_criteria} must not be above max_criteria"
                f" {self.max_criteria}"
            )
        if (
            self.priority_weights.keys() != set(PRIORITIES)
            or min(self.priority_weights.values()) <= 0
        ):
            raise ValueError(
                f"priority_weights needs a weight above 0 for each of {', '.join(PRIORITIES)}"
            )
        return self
