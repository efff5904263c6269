"""MAE's settings.

The defaults are the paper's (sections 4 and 5, table 3) or, where the paper is silent, the released
code's; profiles hold departures.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from flows.mae.fine_tuning import FineTuning
from flows.settings.profile import Comparing, Dialogues, MethodSettings, Settings
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from tasks.training.grpo import GRPOSettings

PAIRS = 622  # question-answer pairs for fine-tuning, as `selfplay seeds` makes them; for a plan


class Questions(Settings):
    """The questions that a run begins with, and the share of Proposer prompts that show one."""

    file: str | None = Field(
        default=None, description="a file with a column `question`; null: the base model asks"
    )
    count: int = Field(
        default=16,
        ge=0,
        description="number of questions taken from the file, or asked by the base model",
    )
    referenced: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "share of the Proposer's prompts that show an earlier question (paper: 0, 0.5 or 1)"
        ),
    )


class Proposer(Settings):
    """How the difficulty of a question is measured, and which quality it must have."""

    answers: int = Field(
        default=5,
        ge=1,
        description="N_sample: answers per new question, which measure its difficulty",
    )
    lowest_quality: float = Field(
        default=0.7,
        ge=0,
        le=1,
        description="minimum quality of a question that enters D; 0 is the ablation",
    )
    difficulty_from: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="minimum quality for a difficulty reward; released code: 0.7",
    )


class Judge(Settings):
    """How often the Judge marks, and the value of a reply without a mark."""

    judgments: int = Field(
        default=1,
        ge=1,
        description="judgments per question and answer; the released code averages 5",
    )
    unread: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="value used if no mark is readable; released code: 0.5",
    )


class Update(GRPOSettings):
    """One update a step for all roles, without KL (table 3); clipped as in the released code."""

    epsilon_high: float = Field(default=0.28, gt=0)
    beta: float = Field(default=0.0, ge=0)
    entropy_coef: float = Field(default=0.001, ge=0)


class Config(MethodSettings):
    """A whole run: `iterations` times `steps` synchronised updates.

    It uses neither a corpus nor reference answers.
    """

    examined: ClassVar = "model"
    learns_from_questions: ClassVar = "questions.file"

    iterations: int = Field(default=30, ge=1)
    steps: int = Field(default=10, ge=1, description="updates per iteration")
    batch_size: int = Field(default=128, ge=1, description="rollouts per role in every step")
    dialogues: Dialogues = Dialogues(response_tokens=8192)
    questions: Questions = Questions()
    proposer: Proposer = Proposer()
    judge: Judge = Judge()
    pays_format: bool = Field(
        default=True, description="false is the ablation, and leaves the Judge without a reward"
    )
    mini_batch: int = Field(
        default=64,
        ge=1,
        description="rollouts per optimizer step, drawn from those of all trained roles",
    )
    trained: tuple[Literal["proposer", "solver", "judge"], ...] = Field(
        default=("proposer", "solver", "judge"),
        description="roles whose replies are trained on; the paper's ablations leave one out",
    )
    update: Update = Update()
    fine_tuning: FineTuning | None = Field(
        default=None, description="the SFT baseline, instead of self-play"
    )
    match: Comparing = Comparing()

    @model_validator(mode="after")
    def _references_need_questions(self) -> Self:
        if self.questions.referenced and not self.questions.count:
            raise ValueError(
                "questions.referenced shows questions: questions.count has to be at least 1"
            )
        return self

    def workload(self) -> Workload:
        if self.fine_tuning:  # nothing is sampled, and an epoch is an update
            pairs = PlannedRole("solver", Lengths(200, 40), "model").conversations(PAIRS)
            steps = max(1, round(PAIRS / self.fine_tuning.batch_size))
            settings = self.update.model_copy(update={"optimizer_steps": steps})
            return Workload((Step(1, (), PlannedUpdate(settings, (pairs,))),))
        n = self.batch_size
        marks = self.judge.judgments
        role = partial(PlannedRole, model="model")
        proposer = role("proposer", Lengths(350, 400))
        solver = role("solver", Lengths(200, 600), labels=("solver", "trial"))
        judge = role("judge", Lengths(900, 300), labels=("judge", "difficulty", "answers"))
        quality = role("quality", Lengths(500, 300))
        conversations_of = {
            "proposer": proposer.conversations(n),
            "solver": solver.conversations(n),
            "judge": judge.conversations(n),
        }
        tried = n * self.proposer.answers
        others = (
            quality.conversations(n, marks),
            solver.conversations(tried),
            judge.conversations(tried, marks),
            judge.conversations(n, marks),
        )
        num_steps = max(1, round(n * len(self.trained) / self.mini_batch))
        settings = self.update.model_copy(update={"optimizer_steps": num_steps})
        update = PlannedUpdate(settings, tuple(conversations_of[name] for name in self.trained))
        return Workload((Step(self.steps, (*conversations_of.values(), *others), update),))
