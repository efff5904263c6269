"""EAPO's settings.

The defaults are the paper's (sections 3 and 4, appendix A); profiles hold departures. The reward
model's learning rate, batch and bounds (`reward_model`) are ours, since the paper gives none.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from flows.blocks import long_context
from flows.eapo.tree import Trees
from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, Settings
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from tasks.monitors import limits
from tasks.needles import Grid
from tasks.training.grpo import GRPOSettings, LossType

KEPT = 0.8  # a plan assumes that this share of comparisons has a mark that agrees with its outcome
INSTRUCTION_TOKENS = 1024  # of a comparison and its question, at most
# the paper's task types, and those of a question file that names none
TASK_TYPES = (
    "multi_hop",
    "single_table",
    "text_and_table",
    "multi_table",
    "general_qa",
    "multiple_choice",
)


class Models(profile.Models):
    """The base is the policy."""

    reward_model: str | None = Field(
        default=None, description="model that compares evidence and is trained; null: the base"
    )
    judge: str | None = Field(
        default=None, description="model that compares answers with references; null: the base"
    )


class Dialogues(profile.Dialogues):
    """Token budgets of prompts and replies."""

    input_tokens: int = Field(
        default=122_880, ge=1, description="longer training prompts are dropped and counted"
    )
    response_tokens: int = Field(default=8192, ge=1)


class Rewards(Settings):
    """Eq. 2. The answer's weight is 1 minus the other weights."""

    format: float = Field(default=0.1, ge=0, le=1, description="alpha: weight of the format reward")
    evidence: float = Field(
        default=0.3,
        ge=0,
        le=0.9,
        description=(
            "beta: weight of the evidence reward; 0 is outcome-only GRPO, in which no evidence is"
            " compared"
        ),
    )


class Update(GRPOSettings):
    """The paper's GRPO update of the policy: no KL term, and a higher upper clip."""

    learning_rate: float = Field(default=2e-6, ge=0)
    loss_type: LossType = "grpo"
    epsilon_high: float = Field(default=0.28, gt=0)
    beta: float = Field(default=0.0, ge=0)
    dual_clip: float | None = Field(default=None, gt=1)
    optimizer_steps: int = Field(
        default=2, ge=1, description="optimizer steps per update: 64 prompts in mini-batches of 32"
    )


class RewardModel(Settings):
    """Section 3.3: fine-tuned after every iteration on its marks that agree with the outcomes.

    There is one pass over the comparisons that have such marks.
    """

    trained: bool = Field(
        default=True, description="false is the ablation: the reward model is frozen"
    )
    high: int = Field(
        default=4,
        ge=1,
        le=5,
        description="a score of at least this implies that the answer is right",
    )
    low: int = Field(
        default=2, ge=1, le=5, description="a score of at most this implies that it is wrong"
    )
    batch_size: int = Field(default=32, ge=1, description="comparisons per optimizer step")
    update: GRPOSettings = GRPOSettings(learning_rate=1e-5, beta=0.0)


class Limits(limits.Limits):
    """Limits of monitors, including those of quotes and comparisons."""

    min_verbatim: float | None = Field(
        default=None,
        ge=0,
        description="minimum share of quotes that occur in the context word for word",
    )
    max_not_compared: float | None = Field(
        default=0.5, ge=0, description="maximum share of groups whose comparison cannot be read"
    )


class Evaluation(long_context.Evaluation):
    """The held-out score and other measurements on held-out questions."""

    samples: int = Field(default=6, ge=1, description="answers per question; N of best-of-N")
    best_of_n: bool = Field(
        default=True,
        description=(
            "let the reward model choose among the base policy's answers, where the evidence is"
            " known"
        ),
    )
    trees: Trees = Field(
        default=Trees(), description="other ways of answering the same questions (section 2.2)"
    )
    needles: Grid | None = Field(default=None, description="needle in a haystack (appendix B)")


class Config(MethodSettings):
    """The settings of a run.

    An iteration is `steps` updates of the policy, then one of the reward model.
    """

    examined: ClassVar = "policy"
    learns_from_questions: ClassVar = "questions"

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    iterations: int = Field(
        default=4,
        ge=1,
        description=(
            "number of iterations; one pass over the paper's 4,664 questions makes 73 steps"
        ),
    )
    steps: int = Field(default=20, ge=1, description="updates of the policy per iteration")
    questions: str = Field(
        default="micro",
        description='"micro", or a file of questions in any format of `evaluation.benchmark`',
    )
    world_seed: int = Field(default=42, ge=0, lt=1000, description="seed of the built-in world")
    in_world: int = Field(
        default=960, ge=1, description="number of questions in the built-in world"
    )
    batch_size: int = Field(default=64, ge=1, description="questions per step")
    group_size: int = Field(default=6, ge=1, description="G: answers per question")
    always_compare: bool = Field(
        default=False,
        description=(
            "with rewards.evidence=0, a frozen reward model still marks the evidence, to compare"
            " it with EAPO's (figure 6)"
        ),
    )
    outcome: Literal["judge", "rule"] = Field(
        default="judge", description="what decides whether an answer is right"
    )
    judge_temperature: float = Field(
        default=0.0,
        ge=0,
        description=(
            "temperature of the judge; raise it for reasoning models, which repeat themselves at 0"
        ),
    )
    dialogues: Dialogues = Dialogues()
    rewards: Rewards = Rewards()
    reward_model: RewardModel = RewardModel()
    update: Update = Update()
    match: Comparing = Comparing()
    monitor: Limits = Limits()  # pyright: ignore[reportIncompatibleVariableOverride]
    evaluation: Evaluation = Evaluation()  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _held_out_questions_for_all_that_needs_them(self) -> Self:
        cfg = self.evaluation
        if cfg.benchmark == "none" and (cfg.needles or cfg.trees.modes):
            raise ValueError(
                "evaluation.needles and evaluation.trees.modes need held-out questions: set"
                " evaluation.benchmark"
            )
        return self

    @model_validator(mode="after")
    def _haystacks_fit_a_prompt(self) -> Self:
        needles = self.evaluation.needles
        longest = max(needles.lengths) if needles else 0
        if longest >= self.dialogues.input_tokens:
            raise ValueError(
                f"evaluation.needles.lengths: a haystack of {longest} tokens does not fit a prompt"
                f" of dialogues.input_tokens = {self.dialogues.input_tokens}, which also holds"
                " instructions and a question"
            )
        return self

    @property
    def compares(self) -> bool:
        """Whether a reward model marks evidence."""
        return self.rewards.evidence > 0 or self.always_compare

    @property
    def trains_reward_model(self) -> bool:
        """Whether the reward model is updated: never if its marks earn nothing."""
        return self.rewards.evidence > 0 and self.reward_model.trained

    @property
    def structured_roles(self) -> tuple[str, ...]:
        if self.reads_lines and self.outcome != "rule":
            return ("judge",)
        return ()

    def trained_model(self, update: str) -> str:
        if update.startswith("reward_model"):
            return self.models.reward_model or self.models.base
        return self.models.base

    def row_tokens(self, update: str) -> int | None:
        """The most tokens of a training row, for updates of the reward model; None for others.

        A comparison shows the evidence of a group without the context: at most the replies that
        quoted it, its own reply, and the instructions.
        """
        if update.startswith("reward_model"):
            replies = (self.group_size + 1) * self.dialogues.response_tokens
            return replies + INSTRUCTION_TOKENS
        return None

    def workload(self) -> Workload:
        n = self.batch_size
        group = self.group_size
        reply = 4000 if self.dialogues.reasoning else 900
        answers = PlannedRole(
            "policy", Lengths(0.65 * self.dialogues.input_tokens, reply), "policy"
        ).conversations(n, group)
        compared = PlannedRole(
            "reward_model", Lengths(600 + 250 * group, reply), "reward_model"
        ).conversations(n)
        judged = PlannedRole("judge", Lengths(450, 100)).conversations(n * group)
        conversations = (
            answers,
            *([judged] if self.outcome == "judge" else []),
            *([compared] if self.compares else []),
        )
        steps = [Step(self.steps, conversations, PlannedUpdate(self.update, (answers,)))]
        if self.trains_reward_model:
            learnt = compared.role.conversations(KEPT * n * self.steps)
            steps.append(Step(1, (), PlannedUpdate(self.reward_model.update, (learnt,))))
        return Workload(tuple(steps))
