"""Golden Goose's settings. Profiles hold departures from the defaults; flows/goose/README.md says
which of these are the paper's."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, Settings
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from flows.worlds.world import CORPUS
from tasks.training.grpo import GRPOSettings

MOST_DISTRACTORS = 25  # letters up to Z
IN_LINES = 3  # distractors of the worked examples
VALID = 0.7  # a plan assumes this share of readable tasks


class Models(profile.Models):
    """The base is the policy that learns."""

    author: str | None = Field(
        default=None,
        description=(
            "masks steps and writes distractors (paper: GPT-5); it is not trained. null: the base"
        ),
    )


class Dialogues(profile.Dialogues):
    """How much of a document the author reads, and how replies are sampled."""

    document_tokens: int = Field(
        default=2048, ge=1, description="a document's text: its first tokens"
    )
    author_tokens: int = Field(
        default=4096, ge=1, description="most tokens of the author's reply, thoughts included"
    )
    response_tokens: int = Field(
        default=8192, ge=1, description="most tokens to sample for an answer"
    )
    temperature: float = Field(default=1.2, gt=0, description="of sampling answers, in training")
    author_temperature: float = Field(default=1.0, gt=0, description="of sampling tasks")
    author_stop: tuple[str, ...] = Field(
        default=(), description="strings that end the author's reply, besides the model's own end"
    )


class Author(Settings):
    """The tasks that are written about a document."""

    num_distractors: int = Field(
        default=8, ge=1, le=MOST_DISTRACTORS, description="k: wrong options beside the masked step"
    )
    group_size: int = Field(default=1, ge=1, description="tasks asked for about each document")
    extracts: bool = Field(
        default=False,
        description=(
            "for noisy documents such as web pages: the author first writes out a passage worth"
            " asking about, and masks a step of that"
        ),
    )
    min_words: int = Field(default=3, ge=1, description="of a masked step; shorter ones are names")


class Difficulty(Settings):
    """The filter: tasks that the policy solves before training teach it nothing."""

    attempts: int = Field(default=16, ge=1, description="answers to every task, to measure it")
    too_easy: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="a task is dropped if at least this share of the attempts is right",
    )
    enabled: bool = Field(default=True, description="false: tasks that are too easy stay")


class Update(GRPOSettings):
    """Clipping and the weight of the KL term are those of ProRLv2's configuration in NeMo RL
    (examples/configs/prorlv2.yaml)."""

    epsilon_high: float = Field(default=0.27, gt=0)
    learning_rate: float = Field(default=2e-6, gt=0)
    beta: float = Field(default=1e-4, ge=0)


class Config(MethodSettings):
    """The settings of a run. In the paper the tasks are made once: one iteration."""

    worlds: ClassVar[tuple[str, ...]] = (CORPUS,)

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    corpus: str = Field(
        description="a folder, file or dataset of texts, a prepared corpus, or the built-in one"
    )
    corpus_documents: int = Field(default=2000, ge=1, description="documents of a built-in world")
    world_seed: int = Field(default=4242, ge=0, description="of the built-in world")
    iterations: int = Field(
        default=1, ge=1, description="each makes tasks about new documents, filters and trains"
    )
    documents: int = Field(
        default=2048, ge=1, description="that an iteration asks for tasks about, drawn at random"
    )
    dialogues: Dialogues = Dialogues()
    author: Author = Author()
    difficulty: Difficulty = Difficulty()
    steps: int = Field(default=100, ge=0, description="updates in an iteration")
    tasks_per_step: int = Field(
        default=256,
        ge=1,
        description="drawn for an update, if so many are kept; none repeats until all were drawn",
    )
    answers: int = Field(default=16, ge=2, description="G: to each task, compared with each other")
    mini_batch: int | None = Field(
        default=64, ge=1, description="tasks of an optimizer step; null: all of a step"
    )
    permuted: bool = Field(
        default=False, description="a control: the rewards of a task's answers are permuted"
    )
    update: Update = Update()
    match: Comparing = Comparing()

    @model_validator(mode="after")
    def _examples_have_three_distractors(self) -> Self:
        if not self.reads_lines:
            return self
        if self.author.num_distractors != IN_LINES or self.author.extracts:
            raise ValueError(
                f'the worked examples of "lines" have {IN_LINES} distractors and no passage of'
                f" their own: author.num_distractors={IN_LINES} author.extracts=false"
            )
        return self

    @property
    def rows_per_step(self) -> int | None:
        """Rollouts of an optimizer step; None if an update has one."""
        if self.mini_batch is None or self.mini_batch >= self.tasks_per_step:
            return None
        return self.mini_batch * self.answers

    def workload(self) -> Workload:
        text = 0.6 * self.dialogues.document_tokens
        options = 1 + self.author.num_distractors
        author = PlannedRole("author", Lengths(600 + text, 150 + 60.0 * options))
        solver = PlannedRole("solver", Lengths(100 + text + 40.0 * options, 1500), "policy")
        written = author.conversations(self.documents, self.author.group_size)
        tried = solver.conversations(VALID * written.number, self.difficulty.attempts)
        solved = solver.conversations(self.tasks_per_step, self.answers)
        num_steps = max(1, round(self.tasks_per_step / (self.mini_batch or self.tasks_per_step)))
        update = self.update.model_copy(update={"optimizer_steps": num_steps})
        return Workload(
            (
                Step(1, (written, tried)),
                Step(self.steps, (solved,), PlannedUpdate(update, (solved,))),
            )
        )
