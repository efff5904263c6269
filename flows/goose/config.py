"""Golden Goose's settings. Profiles hold departures from the defaults; flows/goose/README.md says
which defaults are the paper's."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, Settings
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from flows.worlds.world import CORPUS
from tasks.training.grpo import GRPOSettings

MOST_DISTRACTORS = 25  # letters up to Z
IN_LINES = 3  # distractors in the worked examples
VALID = 0.7  # a plan assumes that this share of tasks is readable


class Models(profile.Models):
    """The base is the policy that learns."""

    author: str | None = Field(
        default=None,
        description=(
            "model that masks steps and writes distractors (paper: GPT-5); it is not trained."
            " null: the base"
        ),
    )


class Dialogues(profile.Dialogues):
    """How much of a document the author reads, and how replies are sampled."""

    document_tokens: int = Field(
        default=2048, ge=1, description="number of tokens of a document to use, from its beginning"
    )
    author_tokens: int = Field(
        default=4096,
        ge=1,
        description="maximum number of tokens of the author's reply, including its reasoning",
    )
    response_tokens: int = Field(
        default=8192, ge=1, description="maximum number of tokens to sample per answer"
    )
    temperature: float = Field(
        default=1.2, gt=0, description="sampling temperature of answers in training"
    )
    author_temperature: float = Field(
        default=1.0, gt=0, description="sampling temperature of tasks"
    )
    author_stop: tuple[str, ...] = Field(
        default=(),
        description="strings that end the author's reply, besides the model's own end token",
    )


class Author(Settings):
    """The tasks that are written about a document."""

    num_distractors: int = Field(
        default=8, ge=1, le=MOST_DISTRACTORS, description="k: wrong options beside the masked step"
    )
    group_size: int = Field(default=1, ge=1, description="tasks requested per document")
    extracts: bool = Field(
        default=False,
        description=(
            "for noisy documents such as web pages: the author first writes out a passage worth"
            " asking about and masks one of its steps"
        ),
    )
    min_words: int = Field(
        default=3,
        ge=1,
        description="minimum number of words in a masked step; shorter ones are names",
    )


class Difficulty(Settings):
    """The filter: tasks that the policy solves before training teach it nothing."""

    attempts: int = Field(
        default=16, ge=1, description="attempts at every task, to measure its difficulty"
    )
    too_easy: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="a task is dropped if at least this share of the attempts is right",
    )
    enabled: bool = Field(default=True, description="false: tasks that are too easy are kept")


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
    corpus_documents: int = Field(
        default=2000, ge=1, description="number of documents in a built-in world"
    )
    world_seed: int = Field(default=4242, ge=0, description="seed of the built-in world")
    iterations: int = Field(
        default=1,
        ge=1,
        description=(
            "number of iterations; each makes tasks about new documents, filters them and trains"
        ),
    )
    documents: int = Field(
        default=2048,
        ge=1,
        description="documents that an iteration requests tasks about, drawn at random",
    )
    dialogues: Dialogues = Dialogues()
    author: Author = Author()
    difficulty: Difficulty = Difficulty()
    steps: int = Field(default=100, ge=0, description="updates per iteration")
    tasks_per_step: int = Field(
        default=256,
        ge=1,
        description=(
            "tasks drawn for an update, if that many are kept; none repeats until all have been"
            " drawn"
        ),
    )
    answers: int = Field(
        default=16, ge=2, description="G: answers per task, compared with each other"
    )
    mini_batch: int | None = Field(
        default=64, ge=1, description="tasks per optimizer step; null: all of a step"
    )
    permuted: bool = Field(
        default=False, description="control: the rewards of a task's answers are permuted"
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
        """The number of rollouts per optimizer step; None if an update takes only one step."""
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
