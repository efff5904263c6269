"""SPELL's settings, Algorithm 1's "Require".

The defaults are the paper's (section 4.1, appendix E); a profile holds only departures.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from flows.blocks import long_context
from flows.blocks.long_context import has_contexts
from flows.settings import profile
from flows.settings.profile import Interval, MethodSettings, Settings, home
from flows.settings.prompts import is_read_by_lines, prompt_folder
from flows.settings.workload import BASE, Lengths, PlannedRole, PlannedUpdate, Step, Workload
from tasks.normalise import Spread
from tasks.rollouts.dialogue import ChatTemplate
from tasks.training.grpo import GRPOSettings

TaskType = Literal["general_qa", "finance_math", "multiple_choice"]
TASK_TYPES: tuple[TaskType, ...] = ("general_qa", "finance_math", "multiple_choice")
# what a plan assumes: rounds until a batch is full, and shares of a round's clusters
ROUNDS = 1.3
READABLE = 0.8  # have a question that can be read
GROUNDED = 0.7  # have a question that is not answered without the documents
STATED = 0.9  # share of the answers to these that can be read


class Models(profile.Models):
    """The base is the policy that plays all three roles."""

    questioner: str | None = Field(
        default=None,
        description="model that writes the questions and is not trained; null: the policy",
    )
    judge: str | None = Field(
        default=None, description="ablation (table 4): an external judge instead of the rule"
    )
    prober: str | None = Field(
        default=None, description="model that answers each iteration's questions; null: the base"
    )


class Clusters(Settings):
    """The dataset D: clusters of documents, and task types."""

    finance_corpus: str | None = Field(
        default=None,
        description="a separate prepared corpus for financial mathematics; null: `corpus`",
    )
    per_type: int | None = Field(
        default=2150,
        ge=1,
        description=(
            "maximum number of clusters per task type; types share a smaller corpus equally. null:"
            " all clusters serve every type"
        ),
    )
    in_world: int = Field(
        default=48, ge=1, lt=1000, description="number of clusters in the built-in world"
    )


class Dialogues(profile.Dialogues):
    """A reasoning model needs 20,480 `response_tokens`."""

    input_tokens: int = Field(
        default=16384, ge=1, description="longer training prompts are dropped and counted"
    )
    answer_words: int | None = Field(
        default=None,
        ge=1,
        description=(
            "maximum number of words in an answer or a reference: longer answers cover more"
            " references"
        ),
    )
    temperature: float = Field(default=0.7, gt=0)
    top_p: float = Field(default=0.95, gt=0, le=1)


class QuestionerSettings(Settings):
    """l.7-14 and eq. 7."""

    num_documents: int = Field(default=5, ge=1, description="m: new documents for each question")
    memory_pairs: int = Field(
        default=3,
        ge=0,
        description=(
            "L: earlier questions about the cluster that the questioner sees; 0 is the ablation"
            " without history memory"
        ),
    )
    reward: Literal["gaussian", "absolute_zero", "r_zero"] = Field(
        default="gaussian",
        description=(
            "the questioner's reward, a function of the pass rate; absolute_zero and r_zero are"
            " those of other papers"
        ),
    )
    sigma: float = Field(
        default=0.5 / 3, gt=0, description="width of the gaussian; ablations: 0.5 / 6 and 0.5 / 2"
    )
    format_penalty: bool = Field(
        default=True, description="false is the ablation: malformed questions are left out"
    )
    grounding_filter: bool = Field(
        default=True, description="false is the ablation: no question is asked closed-book"
    )
    trained: bool = Field(
        default=True, description="false is the ablation: the questioner is not updated"
    )
    advantage_per_type: bool = Field(
        default=False, description="compute z-scores within task types, not over the batch"
    )


class VerifierSettings(Settings):
    """l.16-17, eq. 4 and 5."""

    enabled: bool = Field(default=True, description="false is the ablation: the rule decides alone")
    majority_vote: bool = Field(
        default=True, description="false is the ablation: the first vote decides"
    )
    consistency: bool = Field(
        default=True,
        description=(
            "train only on votes whose majority agrees with the rule; false is the ablation"
        ),
    )
    share: Interval = Field(
        default=(0.51, 0.99),
        description="minimum and maximum share of the readable votes that the majority may have",
    )
    trained: bool = Field(
        default=True, description="false is the ablation: the verifier is not updated"
    )
    response_tokens: int | None = Field(
        default=None,
        ge=1,
        description="maximum number of tokens per vote; null: as in the other roles",
    )


class Controls(Settings):
    """Controls: could a gain come from something other than right answers?"""

    permuted: bool = Field(
        default=False, description="control: the rewards of a question's answers are permuted"
    )
    readable: bool = Field(
        default=False, description="control: any readable answer counts as right"
    )
    rule_misses: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "share of questions whose right answers the rule misses, as if they were worded unlike"
            " the reference, so that the verifier has something to correct"
        ),
    )


class SamplingSettings(Settings):
    """Role-specific dynamic sampling (section 3.3)."""

    groups: int = Field(default=128, ge=1, description="N: responder groups in a batch")
    clusters_per_round: int = Field(
        default=480, ge=1, description="clusters drawn at once, in equal shares per task type"
    )
    max_rounds: int = Field(
        default=10,
        ge=1,
        description=(
            "maximum number of sampling rounds to fill a batch; after that the batch is short"
            " (`sampling.short_batch`)"
        ),
    )
    short_batch: Literal["error", "fewer"] = Field(
        default="error", description='"fewer": the update takes the groups that there are'
    )
    right_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "minimum share of right answers among the readable ones; below it, the reference is"
            " probably wrong"
        ),
    )


class Update(GRPOSettings):
    """Strictly on-policy, no KL, a mean over the tokens of all roles, as in the released code.

    Eq. 12 divides by the tokens of a group.
    """

    learning_rate: float = Field(default=2e-6, ge=0)
    beta: float = Field(default=0.0, ge=0)
    dual_clip: float | None = Field(default=None, gt=1)
    on_policy: bool = True


class Baseline(Settings):
    """Other prompts for the base model on held-out questions."""

    prompts: str = Field(description="the folder that contains the responder's prompts")
    chat_template: ChatTemplate = Field(
        default="model", description="how these prompts are wrapped"
    )


class Evaluation(long_context.Evaluation):
    """The held-out score after every iteration (appendix E.2)."""

    also: tuple[str, ...] = Field(default=(), description="more benchmark files to score")
    baselines: tuple[Baseline, ...] = Field(
        default=(), description="other prompts that the base model is also scored with"
    )
    samples: int = Field(default=8, ge=1, description="n of pass@k")
    passes: tuple[int, ...] = Field(
        default=(1, 4, 8),
        description="k of pass@k; values above `evaluation.samples` are left out",
    )
    input_tokens: tuple[int, ...] = Field(
        default=(16384,), description="length limits; longer prompts are cut in the middle"
    )
    probe_answers: int = Field(
        default=0,
        ge=0,
        description=(
            "number of answers by a fixed responder to every question of an iteration's last step"
            " (figure 4)"
        ),
    )

    @property
    def held_out_sets(self) -> tuple[str, ...]:
        return (*super().held_out_sets, *self.also)

    @model_validator(mode="after")
    def _files_have_names_of_their_own(self) -> Self:
        names = [Path(name).stem for name in (self.benchmark, *self.also)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two files of evaluation.benchmark and evaluation.also are called {name!r}:"
                    " their scores could not be told apart"
                )
        return self


class Config(MethodSettings):
    """The settings of a run. An iteration is `steps` steps, a held-out score and a report."""

    worlds: ClassVar = ("micro",)
    needs_clusters: ClassVar = True
    other_corpora: ClassVar = ("clusters.finance_corpus",)

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    iterations: int = Field(
        default=7,
        ge=1,
        description="iterations of ten steps: the paper's 8 hours at 7 minutes per step",
    )
    steps: int = Field(default=10, ge=1, description="number of updates per iteration")
    corpus: str = Field(default="micro", description="a prepared corpus, or the built-in world")
    corpus_profile: str | None = "spell"
    world_seed: int = Field(default=42, ge=0, lt=1000, description="seed of the built-in world")
    clusters: Clusters = Clusters()
    given: str | None = Field(
        default=None,
        description=(
            "a file of questions, in any format of `evaluation.benchmark`, used instead of the"
            " questioner's: the RLVR baseline. A question whose `second_answer` differs is left"
            " out; in a file without answers, the reference is the majority of the answers to a"
            " question"
        ),
    )
    given_answers: bool = Field(default=True, description="false: ignore the answers in `given`")
    given_questions: int | None = Field(
        default=None,
        ge=1,
        description="number of questions of `given` to use, drawn with `seed`; null: all",
    )
    given_wrong: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "share of the questions in `given` that deliberately get another question's answer: a"
            " noisy baseline"
        ),
    )
    task_types: tuple[TaskType, ...] = Field(
        default=TASK_TYPES, min_length=1, description="types of questions to ask, in equal shares"
    )
    group_size: int = Field(
        default=8,
        ge=1,
        description="G: answers per question and votes per answer; ablations: 4, 16",
    )
    dialogues: Dialogues = Dialogues()
    asking: Dialogues | None = Field(
        default=None,
        description="how the questioner is prompted; null: like the other roles, by `dialogues`",
    )
    questioner: QuestionerSettings = QuestionerSettings()
    verifier: VerifierSettings = VerifierSettings()
    sampling: SamplingSettings = SamplingSettings()
    controls: Controls = Controls()
    equal_roles: bool = Field(
        default=False, description="eq. 10: sum the roles' means over their own tokens"
    )
    update: Update = Update()
    advantage_std: Spread = Field(
        default="population",
        description=(
            "divisor of advantages: the standard deviation of the population or of the sample, as"
            " in TRL"
        ),
    )
    evaluation: Evaluation = Evaluation()  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="before")
    @classmethod
    def _asks_as_the_others_are_asked(cls, values: Any) -> Any:
        """Settings missing from `asking` are taken from `dialogues`, unless `asking` names its own
        prompts."""
        if not (isinstance(values, dict) and isinstance(values.get("asking"), dict)):
            return values
        if "prompts" in values["asking"]:  # other prompts have another form
            return values
        others = values.get("dialogues") or {}
        if isinstance(others, Dialogues):
            others = others.model_dump()
        return values | {"asking": {**others, **values["asking"]}}

    @model_validator(mode="after")
    def _an_update_has_one_temperature(self) -> Self:
        asking = self.asking
        if asking is None or not self.questioner.trained:
            return self
        if asking.temperature != self.dialogues.temperature:
            raise ValueError(
                f"asking.temperature {asking.temperature:g} is not that of dialogues,"
                f" {self.dialogues.temperature:g}: one update cannot train on both. Set"
                " questioner.trained = false, or the same temperature"
            )
        return self

    @model_validator(mode="after")
    def _lines_are_of_one_type(self) -> Self:
        if self.reads_lines and self.task_types != ("general_qa",):
            raise ValueError(
                'prompts "lines" ask one type of question: set task_types = ["general_qa"]'
            )
        return self

    @model_validator(mode="after")
    def _given_questions_need_no_questioner(self) -> Self:
        at_work = (
            self.questioner.trained,
            self.questioner.memory_pairs > 0,
            self.questioner.grounding_filter,
            self.verifier.enabled,
        )
        if self.given and any(at_work):
            raise ValueError(
                "given questions leave nothing to do for questioner.trained,"
                " questioner.memory_pairs, questioner.grounding_filter, verifier.enabled: switch"
                " them off"
            )
        return self

    @model_validator(mode="after")
    def _another_questioner_is_not_trained(self) -> Self:
        if self.models.questioner and self.questioner.trained:
            raise ValueError(
                "models.questioner writes the questions, and only the policy is trained: set"
                " questioner.trained = false"
            )
        return self

    @property
    def held_out_types(self) -> tuple[TaskType, ...]:
        """The types of held-out questions that all prompts have a template for."""
        if self.reads_lines or self.evaluation.baselines:
            return self.task_types
        return TASK_TYPES

    @property
    def structured_roles(self) -> tuple[str, ...]:
        roles: tuple[str, ...] = ()
        if self.reads_lines and self.models.judge:
            roles = (*roles, "judge")
        asking = (self.asking or self.dialogues).prompts
        asks_in_lines = is_read_by_lines(prompt_folder(home(type(self)), asking))
        if asks_in_lines and self.models.questioner:
            roles = (*roles, "questioner")
        return roles

    @property
    def learns_from(self) -> tuple[str, ...]:
        if self.given and Path(self.given).is_file() and has_contexts(self.given):
            return ()
        corpora = (self.corpus, self.clusters.finance_corpus)
        return tuple(dict.fromkeys(name for name in corpora if name))

    @model_validator(mode="after")
    def _prompt_and_reply_fit(self) -> Self:
        longest_input = self.dialogues.input_tokens
        if self.evaluation.benchmark != "none":
            longest_input = max(longest_input, *self.evaluation.input_tokens)
        needed = longest_input + self.dialogues.response_tokens
        if self.asking is not None and self.models.questioner is None:
            needed = max(needed, self.asking.input_tokens + self.asking.response_tokens)
        room = self.engine.max_model_len
        if needed > room:
            raise ValueError(
                f"input and response of {needed} tokens do not fit into engine.max_model_len {room}"
            )
        return self

    @property
    def caution(self) -> str | None:
        asks_itself = not (self.given or self.models.questioner or self.questioner.trained)
        if not (asks_itself and self.models.start):
            return None
        return (
            "the model asks by itself, and starts from what its questions have taught before: from"
            " there SmolLM2-135M gained nothing on three kinds of documents"
        )

    def workload(self) -> Workload:
        rounds = min(ROUNDS, self.sampling.max_rounds)
        clusters = rounds * self.sampling.clusters_per_round
        g = self.group_size
        groups = self.sampling.groups
        documents = 0.375 * self.dialogues.input_tokens
        reply = min(4000 if self.dialogues.reasoning else 500, self.dialogues.response_tokens)
        role = partial(PlannedRole, model="policy")
        asks = BASE if self.models.questioner else "policy"
        questioner = role("questioner", Lengths(0.8 * documents, reply), model=asks)
        responder = role("responder", Lengths(documents, reply))
        verifier = role("verifier", Lengths(450, min(reply, 300)))
        judge = PlannedRole("judge", verifier.lengths)
        # all questions of a file can be read, and none is asked without its context
        answered = clusters if self.given else GROUNDED * clusters
        sampled = [] if self.given else [questioner.conversations(clusters)]
        trained = [responder.conversations(groups, g)]
        if self.questioner.grounding_filter:
            closed_book = role("closed-book", Lengths(200, reply))
            sampled.append(closed_book.conversations(READABLE * clusters))
        sampled.append(responder.conversations(answered, g))
        if self.models.judge:
            sampled.append(judge.conversations(STATED * answered * g))
        if self.questioner.trained:
            trained.append(questioner.conversations(groups, 2))
        if self.verifier.enabled:
            sampled.append(verifier.conversations(STATED * answered * g, g))
        if self.verifier.enabled and self.verifier.trained:
            trained.append(verifier.conversations(groups))
        return Workload(
            (Step(self.steps, tuple(sampled), PlannedUpdate(self.update, tuple(trained))),)
        )
