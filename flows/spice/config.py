"""SPICE's settings.

The defaults are the paper's (section 3.1, appendix 8); profiles hold departures.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from flows.settings import profile
from flows.settings.profile import Comparing, Evaluation, MethodSettings, Settings, Shares
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from flows.spice.readers import ANSWER_TYPES, FREE_FORM, MULTIPLE_CHOICE, STRING, AnswerType
from tasks.noise import VerdictErrors
from tasks.training.grpo import GRPOSettings, LossType

# A plan assumes this share of valid questions among the first round's attempts, and later rounds
# with these shares of the documents and this many attempts per document.
VALID = 0.6
LATER_ROUNDS = ((0.2, 8), (0.1, 16), (0.05, 32), (0.03, 64))


class Models(profile.Models):
    """The base is the single policy that plays both roles."""

    challenger: str | None = Field(
        default=None,
        description="ablation: a stronger model that asks instead; needs challenger.fixed",
    )


class Dialogues(profile.Dialogues):
    """Token budgets and sampling. The paper states only the segment's length."""

    document_tokens: int = Field(
        default=5992, ge=1, description="number of tokens of a document to use, from its beginning"
    )
    choice_tokens: int = Field(
        default=1024, ge=1, description="maximum number of tokens for the choice of a format"
    )
    response_tokens: int = Field(
        default=8192, ge=1, description="maximum number of tokens per question or answer"
    )
    system: str = Field(
        default="You are a helpful assistant.", description="system message; empty: none"
    )


class ChallengerSettings(Settings):
    """Section 2.2."""

    attempts: int = Field(
        default=1024,
        ge=1,
        description="N: maximum attempts per document, until one question is valid",
    )
    group_size: int = Field(
        default=8, ge=1, description="G: attempts per document that are rewarded"
    )
    reward: Literal["variance", "absolute_zero", "threshold", "r_zero"] = Field(
        default="variance",
        description=(
            "the Challenger's reward, a function of the pass rate; the others are the rivals of"
            " the paper's reward"
        ),
    )
    invalid_reward: float = Field(default=-0.1, description="rho: reward for an invalid question")
    fixed: bool = Field(
        default=False, description="ablation: not trained; models.base asks, or models.challenger"
    )
    grounded: bool = Field(default=True, description="false is the ablation: no document is shown")
    formats: tuple[Literal["multiple_choice", "free_form"], ...] = Field(
        default=(MULTIPLE_CHOICE, FREE_FORM),
        description="question formats from which the Challenger chooses",
    )
    answer_types: tuple[AnswerType, ...] = Field(
        default=ANSWER_TYPES[:3], description="answer types of free-form questions"
    )

    @model_validator(mode="after")
    def _something_can_be_asked(self) -> Self:
        if not self.formats or (FREE_FORM in self.formats and not self.answer_types):
            raise ValueError(
                "formats and answer_types leave nothing to ask: name at least one of each"
            )
        if self.attempts < self.group_size:
            raise ValueError(
                f"attempts {self.attempts} must not be below group_size {self.group_size}"
            )
        return self


class ReasonerSettings(Settings):
    """Section 2.3."""

    answers: int = Field(
        default=8,
        ge=1,
        description=(
            "K: answers per question, which form the group that its reward is computed from"
        ),
    )
    permuted: bool = Field(
        default=False, description="control: the rewards of a question's answers are permuted"
    )


class Update(GRPOSettings):
    """Dr. GRPO without KL (section 2.4, appendix 8).

    The single step per generation is on-policy: rho is 1, and nothing is clipped.
    """

    loss_type: LossType = "dr_grpo"
    beta: float = Field(default=0.0, ge=0)
    dual_clip: float | None = Field(default=None, gt=1)
    on_policy: bool = True
    max_completion_tokens: int | None = Field(
        default=8192, ge=1, description="the constant divisor of dr_grpo"
    )


class ProbeSettings(Settings):
    """Checkpoints against one fixed opponent (figure 3), after the last iteration.

    Iteration 0 is models.base.
    """

    opponent: int = Field(default=1, ge=0, description="iteration of the opponent")
    checkpoints: tuple[int, ...] = Field(
        default=(), description="iterations measured against it; empty: no probe"
    )
    num_documents: int = Field(
        default=128, ge=1, description="number of documents that questions are asked about"
    )
    attempts: int = Field(default=128, ge=1, description="questions per document")


class Config(MethodSettings):
    """The settings of a run.

    The paper's T = 640 is `iterations` times `steps`: an iteration here ends with a held-out score
    and a report.
    """

    worlds: ClassVar = ("micro", "micro-mathematics", "micro-general")

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    iterations: int = Field(default=16, ge=1)
    steps: int = Field(
        default=40, ge=1, description="steps of Algorithm 1 per iteration: l.3-28, one update each"
    )
    documents_per_step: int = Field(default=128, ge=1, description="B: documents drawn per step")
    corpora: Shares[str] = Field(
        default={"micro": 1.0},
        description=(
            "each corpus (a path, a dataset, a prepared corpus or a built-in world) and its share"
            " of a step's documents (paper: mathematics and general, half each)"
        ),
    )
    corpus: str | None = Field(default=None, description="a single corpus instead of `corpora`")
    corpus_documents: int = Field(
        default=2000, ge=2, description="number of documents in a built-in world"
    )
    world_seed: int = Field(default=4242, ge=0, description="seed of the built-in worlds")
    dialogues: Dialogues = Dialogues()
    challenger: ChallengerSettings = ChallengerSettings()
    reasoner: ReasonerSettings = ReasonerSettings()
    match: Comparing = Comparing()
    update: Update = Update()
    trajectories_per_update: int | None = Field(
        default=None,
        ge=1,
        description=(
            "trajectories per optimizer step, off-policy from the second step on (appendix 8:"
            " 128); null: all"
        ),
    )
    evaluation: Evaluation = Evaluation()
    probes: ProbeSettings = ProbeSettings()
    errors: VerdictErrors = Field(
        default=VerdictErrors(),
        description="deliberate errors in the verdicts: in built-in worlds, for studies of noise",
    )

    @property
    def shares(self) -> dict[str, float]:
        """Corpora and their shares."""
        if self.corpus:
            return {self.corpus: 1.0}
        return self.corpora

    @property
    def learns_from(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def only_task_type(self) -> str | None:
        """The only type of task that may be asked; None if there are several."""
        task_types = list[str]()
        if MULTIPLE_CHOICE in self.challenger.formats:
            task_types.append(MULTIPLE_CHOICE)
        if FREE_FORM in self.challenger.formats:
            task_types += self.challenger.answer_types
        if len(task_types) != 1:
            return None
        return task_types[0]

    @model_validator(mode="after")
    def _another_challenger_is_fixed(self) -> Self:
        if self.models.challenger and not self.challenger.fixed:
            raise ValueError(
                "models.challenger is not the policy that learns: set challenger.fixed=true"
            )
        if self.reads_lines and self.only_task_type != STRING:
            raise ValueError(
                '"lines" ask for strings: challenger.formats=["free_form"],'
                ' challenger.answer_types=["String"]'
            )
        if self.judge_engine and not (
            self.models.challenger or self.models.examiner or self.models.auditor
        ):
            raise ValueError(
                "judge_engine serves models.challenger, models.examiner and models.auditor: name"
                " one, too"
            )
        return self

    @model_validator(mode="after")
    def _the_constant_is_the_generation_budget(self) -> Self:
        constant = self.update.max_completion_tokens
        budget = self.dialogues.response_tokens
        if self.update.loss_type == "dr_grpo" and constant != budget:
            raise ValueError(
                f"update.max_completion_tokens {constant} must be dialogues.response_tokens,"
                f" {budget}: Dr. GRPO divides every reply's sum by the generation budget"
            )
        return self

    @model_validator(mode="after")
    def _probed_iterations_exist(self) -> Self:
        if not self.probes.checkpoints:
            return self
        probed = {*self.probes.checkpoints, self.probes.opponent}
        if min(probed) < 0 or max(probed) > self.iterations:
            raise ValueError(
                f"probes name iterations {sorted(probed)}, the run has 0 to {self.iterations}:"
                " change them, or set probes.checkpoints=[] for none"
            )
        return self

    def workload(self) -> Workload:
        documents = self.documents_per_step
        group = self.challenger.group_size
        segment = 0.6 * self.dialogues.document_tokens
        asker = "base" if self.challenger.fixed else "policy"
        chooser = PlannedRole("choice", Lengths(segment, 300), asker)
        challenger = PlannedRole("question", Lengths(segment, 900), asker)
        reasoner = PlannedRole("reasoner", Lengths(150, 900), "policy")
        tries = [(documents * share, n) for share, n in ((1.0, group), *LATER_ROUNDS)]
        rounds = [challenger.conversations(*some) for some in tries]
        chosen = [] if self.only_task_type else [chooser.conversations(*some) for some in tries]
        answers = reasoner.conversations(documents * group * VALID, self.reasoner.answers)
        proposed = [] if self.challenger.fixed else [challenger.conversations(documents, group)]
        trained = (reasoner.conversations(documents, self.reasoner.answers), *proposed)
        return Workload(
            (Step(self.steps, (*chosen, *rounds, answers), PlannedUpdate(self.update, trained)),)
        )
