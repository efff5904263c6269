"""SCOPE's settings, Algorithm 1's "Require". The defaults are the paper's (table 9, appendices F
and G); a profile holds only departures."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from corpus_prep.search.settings import EmbeddingConfig
from flows.scope.judge_settings import JudgeSettings
from flows.settings import profile
from flows.settings.profile import (
    Interval,
    MethodSettings,
    NumberKey,
    PromptSet,
    Settings,
    Shares,
)
from flows.settings.workload import (
    Lengths,
    PlannedConversations,
    PlannedRole,
    PlannedUpdate,
    Step,
    Workload,
    draws_until,
)
from tasks.given import GivenTasks
from tasks.noise import VerdictErrors
from tasks.normalise import Spread
from tasks.rollouts.dialogue import ChatTemplate
from tasks.rollouts.search_syntax import Syntax
from tasks.training.grpo import GRPOSettings, LossType

TaskType = Literal["long_form_qa", "summarisation", "planning", "writing", "creative_writing"]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)[:4]
# shares that a plan assumes: tasks that pass the gates, and candidates inside the window
GATED = 0.8
KEPT = 0.35
CRITERIA = 5  # of a rubric, in a plan


class Models(profile.Models):
    """The base is M0: the initial Challenger and Solver, the Judge, and the KL reference. Two other
    models may take the Judge's parts (section 5)."""

    rubric_writer: str | None = Field(
        default=None, description="model that writes the rubrics; null: the base"
    )
    grader: str | None = Field(
        default=None, description="model that grades answers by a criterion; null: the base"
    )


class Dialogues(Settings):
    """How the model family searches and thinks, and how long a conversation may get."""

    prompts: PromptSet = Field(
        default="english",
        description=(
            'a folder in the method\'s prompts, or a path to one; "lines": worked examples that a'
            " small or base model continues, one line per turn"
        ),
    )
    chat_template: ChatTemplate = Field(
        default="model", description='"none": the bare prompt, which a base model continues'
    )
    template_arguments: dict[str, bool | str] = Field(
        default={},
        description=(
            "arguments of the model's chat template, such as {enable_thinking = false} for hybrid"
            " Qwen3 models"
        ),
    )
    search_syntax: Literal["tags", "qwen", "olmo"] = Field(
        default="tags",
        description='how the model family writes a search; `lines` prompts use "Search:"',
    )
    reasoning: bool = Field(
        default=False,
        description=(
            "whether the model reasons before it replies; later turns do not see earlier"
            " reasoning, so each turn is a separate training row"
        ),
    )
    documents_per_query: int = Field(
        default=3, ge=1, description="documents returned by one search"
    )
    result_tokens: int = Field(
        default=500,
        ge=1,
        description="maximum number of tokens of the documents of one search, in total",
    )
    source_tokens: int = Field(
        default=256,
        ge=1,
        description="maximum number of tokens of the source document in the Challenger's prompt",
    )
    response_tokens: int = Field(
        default=8192, ge=1, description="maximum number of tokens per assistant turn"
    )
    challenger_prompt_tokens: int = Field(
        default=1024, ge=1, description="longer prompts are not sampled from"
    )
    solver_prompt_tokens: int = Field(
        default=2048, ge=1, description="longer prompts are not sampled from"
    )
    context_tokens: int = Field(
        default=16384,
        ge=1,
        description="maximum number of tokens of a training rollout, including the prompt",
    )
    challenger_turns: int = Field(default=10, ge=2, description="maximum number of assistant turns")
    solver_turns: int = Field(
        default=5, ge=1, description="maximum number of assistant turns; the last one has no search"
    )
    insist_times: int = Field(
        default=5,
        ge=0,
        description=(
            "outside training, how often a Solver that has not answered is told to answer now"
        ),
    )


class ChallengerReward(Settings):
    """Eq. 4 and 5."""

    format_weight: float = Field(default=0.5, ge=0, description="weight of the task's format")
    difficulty_weight: float = Field(
        default=1.0, ge=0, description="weight of the task's difficulty"
    )
    tau: float = Field(default=0.5, gt=0, lt=1, description="the pass rate that is rewarded most")


class SolverReward(Settings):
    """Eq. 6 and 7."""

    rubric_weight: float = Field(default=1.0, ge=0, description="weight of the grade")
    format_weight: float = Field(default=0.5, ge=0, description="weight of the answer's format")
    search_weight: float = Field(default=0.1, ge=0, description="weight of having searched")
    length_penalty: bool = Field(
        default=True, description="false is the ablation: the grade of a long answer is not lowered"
    )
    length_soft: int = Field(
        default=1024, ge=1, description="number of tokens above which an answer's grade is lowered"
    )
    length_hard: int = Field(
        default=2048,
        ge=2,
        description="number of tokens from which only length_floor of an answer's grade remains",
    )
    length_floor: float = Field(
        default=0.05, ge=0, le=1, description="what remains of the grade at length_hard"
    )

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Self:
        if self.length_soft >= self.length_hard:
            raise ValueError(
                f"length_soft {self.length_soft} must be below length_hard {self.length_hard}"
            )
        return self


class Update(GRPOSettings):
    """Eq. 3 averages over rollouts, each the mean over its tokens. A reasoning model is trained
    turn by turn and the mean is over turns, as in the released code: a rollout of four turns weighs
    four times as much as a single-turn one. One step on the policy's own rollouts is on-policy."""

    loss_type: LossType = "grpo"

    @model_validator(mode="before")
    @classmethod
    def _one_step_is_on_policy(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {"on_policy": values.get("optimizer_steps", 1) == 1, **values}
        return values


class SolverUpdate(Update):
    """The Solver's upper clip bound is higher (released scripts)."""

    epsilon_high: float = Field(default=0.28, gt=0)


class ChallengerSettings(Settings):
    """Stage 1."""

    steps: int = Field(default=20, ge=0, description="updates of the Challenger per iteration")
    prompts_per_step: int = Field(
        default=64, ge=1, description="documents per step, each with a group of tasks"
    )
    group_size: int = Field(default=8, ge=1, description="G: tasks per document")
    solver_rollouts: int = Field(
        default=8, ge=1, description="N: Solver rollouts that measure a task's difficulty"
    )
    search_turns: Shares[NumberKey] = Field(
        default={1: 4, 2: 3, 3: 2},
        description="how many searches a Challenger has to make, with the shares of its prompts",
    )
    frozen_after: int | None = Field(
        default=None, ge=0, description="ablation: not trained after this iteration"
    )
    reward: ChallengerReward = ChallengerReward()
    temperature: float = Field(default=1.0, gt=0, description="sampling temperature of tasks")
    difficulty_temperature: float = Field(
        default=0.7,
        ge=0,
        description="sampling temperature of the answers that measure a task's difficulty",
    )
    difficulty_top_p: float = Field(
        default=0.9, gt=0, le=1, description="top-p of the same answers"
    )
    update: Update = Update()

    def is_frozen(self, iteration: int) -> bool:
        """Whether the Challenger is no longer trained in an iteration."""
        return self.frozen_after is not None and iteration > self.frozen_after


class PoolSettings(Settings):
    """Candidate tasks and the difficulty window."""

    given: GivenTasks | None = Field(
        default=None,
        description=(
            "the GRPO_data baseline: these tasks train the Solver instead of the Challenger's"
        ),
    )
    candidates_per_batch: int = Field(default=500, ge=1, description="tasks drawn at once")
    max_batches: int = Field(
        default=100,
        ge=1,
        description=(
            "maximum number of batches drawn to fill the pool; after that it is short"
            " (`pool.short_pool`)"
        ),
    )
    batches_at_once: int = Field(
        default=1,
        ge=1,
        description=(
            "batches drawn together while all of them are needed, so that their longest replies"
            " overlap"
        ),
    )
    solver_rollouts: int = Field(
        default=4, ge=1, description="N: Solver rollouts behind the filter"
    )
    window: Interval = Field(
        default=(0.2, 0.8),
        description="range of the mean grade; tasks outside it are too hard or too easy",
    )
    tasks_per_document: int = Field(
        default=1, ge=1, description="maximum number of tasks to keep from one document"
    )
    min_graded_rollouts: int = Field(
        default=1, ge=1, description="graded answers that a task needs for a mean grade (g_bar)"
    )
    short_pool: Literal["error", "fewer_steps"] = Field(
        default="error",
        description='"fewer_steps": train the Solver on what there is, in fewer or smaller batches',
    )


class SolverSettings(Settings):
    """Stage 2."""

    steps: int = Field(default=20, ge=0, description="updates of the Solver per iteration")
    prompts_per_step: int = Field(default=256, ge=1, description="tasks per step")
    group_size: int = Field(default=8, ge=1, description="G: answers per task")
    temperature: float = Field(default=1.0, gt=0, description="sampling temperature of answers")
    reward: SolverReward = SolverReward()
    update: SolverUpdate = SolverUpdate()


class InformationSettings(Settings):
    """The estimates of learnable information (section 3.2) after every iteration."""

    num_tasks: int = Field(
        default=32,
        ge=0,
        description=(
            "number of tasks of the pool to measure, kept ones first; 0 turns the estimates off"
        ),
    )
    num_documents: int = Field(
        default=128,
        ge=2,
        description="n: number of documents, including the task's own: I(q; d) is at most log n",
    )


class Evaluation(profile.Evaluation):
    """The held-out score after every iteration."""

    replay: tuple[tuple[int, int], ...] = Field(
        default=(),
        description=(
            "pairs of iterations: after the last iteration, the policy of the second answers with"
            " the searches of the first"
        ),
    )

    @model_validator(mode="after")
    def _replays_a_benchmark(self) -> Self:
        if self.replay and self.benchmark == "none" and not self.benchmarks:
            raise ValueError(
                "replay answers evaluation.benchmark and evaluation.benchmarks again: name one"
                ' ("micro", or ["nq"]), or leave replay out'
            )
        return self


class Branch(Settings):
    """The run and iteration to start from: the ablations of the Judge branch from one
    checkpoint. Iterations are numbered on from there."""

    run: str = Field(description="name of the run to branch from")
    iteration: int = Field(
        ge=1,
        description=(
            "iteration to branch from; the last one if the run has keep_checkpoints=last, since"
            " the others have no optimizer states"
        ),
    )


class Config(MethodSettings):
    """The settings of a run."""

    worlds: ClassVar = ("micro",)
    examined: ClassVar = "solver"

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    iterations: int = Field(
        default=3,
        ge=1,
        description="T: number of iterations; each trains the Challenger, then the Solver",
    )
    branch: Branch | None = Field(
        default=None, description="start with the policies of another run's iteration"
    )
    corpus: str = Field(
        default="micro", description="a path, a dataset, a prepared corpus or the built-in world"
    )
    corpus_documents: int = Field(
        default=400, ge=2, le=400, description="number of documents in the built-in world"
    )
    world_seed: int = Field(default=4242, ge=0, description="seed of the built-in world")
    embedding: EmbeddingConfig | None = Field(
        default=None, description="embedding model for the search; null: BM25"
    )
    task_types: tuple[TaskType, ...] = Field(
        default=TASK_TYPES,
        min_length=1,
        description="types of tasks that the Challenger is asked for, drawn uniformly",
    )
    dialogues: Dialogues = Dialogues()
    challenger: ChallengerSettings = ChallengerSettings()
    pool: PoolSettings = PoolSettings()
    solver: SolverSettings = SolverSettings()
    judge: JudgeSettings = JudgeSettings()
    errors: VerdictErrors = Field(
        default=VerdictErrors(),
        description=(
            "deliberate errors in the verdicts that tasks and answers are rewarded by: in the"
            " built-in world, for studies of judges"
        ),
    )
    information: InformationSettings = InformationSettings()
    evaluation: Evaluation = Evaluation()  # pyright: ignore[reportIncompatibleVariableOverride]
    advantage_std: Spread = Field(
        default="population",
        description=(
            "divisor of advantages: the standard deviation of the population (appendix D) or of"
            " the sample, as in TRL"
        ),
    )
    warmup_ratio: float = Field(
        default=0.03,
        ge=0,
        le=1,
        description="share of a role's steps in one iteration spent on warmup, in whole steps",
    )

    @property
    def first_iteration(self) -> int:
        """1, or the one after the iteration of another run that this run branches from."""
        if self.branch is None:
            return 1
        return self.branch.iteration + 1

    @property
    def search_syntax(self) -> Syntax:
        """How a search is written: as lines, if replies are read line by line."""
        if self.reads_lines:
            return "lines"
        return self.dialogues.search_syntax

    @property
    def structured_roles(self) -> tuple[str, ...]:
        if self.reads_lines:
            return ("gate", "rubric", "grade")
        return ()

    @model_validator(mode="after")
    def _lines_show_one_type_of_task(self) -> Self:
        if not self.reads_lines:
            return self
        if self.task_types != ("long_form_qa",):
            raise ValueError(
                f'prompts "{self.dialogues.prompts}" ask for questions: task_types=["long_form_qa"]'
            )
        if self.information.num_tasks:
            raise ValueError(
                f'prompts "{self.dialogues.prompts}" have no elements whose likelihood could be'
                " measured: information.num_tasks=0"
            )
        return self

    @model_validator(mode="after")
    def _verdicts_on_criteria_have_no_frequent_mistake(self) -> Self:
        if self.errors.shape == "mistake":
            raise ValueError(
                'errors.shape "mistake" is for answers that equal a reference: answers here meet'
                ' criteria, so choose "independent", "task" or "length"'
            )
        return self

    @model_validator(mode="after")
    def _given_tasks_need_no_challenger(self) -> Self:
        if self.pool.given and (self.challenger.frozen_after != 0 or self.information.num_tasks):
            raise ValueError(
                "pool.given needs challenger.frozen_after=0 and information.num_tasks=0: with given"
                " tasks no Challenger writes any"
            )
        return self

    @model_validator(mode="after")
    def _iterations_follow_the_branch(self) -> Self:
        if self.iterations < self.first_iteration:
            raise ValueError(
                f"a run that branches from iteration {self.first_iteration - 1} begins with"
                f" iteration {self.first_iteration}: iterations={self.iterations} leaves nothing to"
                " do"
            )
        return self

    @model_validator(mode="after")
    def _replays_iterations_of_this_run(self) -> Self:
        first = self.first_iteration - 1
        for pair in self.evaluation.replay:
            if not all(first <= iteration <= self.iterations for iteration in pair):
                raise ValueError(
                    f"evaluation.replay names iterations {list(pair)}: this run evaluates"
                    f" {first} to {self.iterations}"
                )
        return self

    @model_validator(mode="after")
    def _turns_suffice_for_searches(self) -> Self:
        most = max(self.challenger.search_turns)
        turns = self.dialogues.challenger_turns
        if most >= turns:
            raise ValueError(
                f"{most} search turns and the task do not fit into dialogues.challenger_turns"
                f" {turns}"
            )
        return self

    def workload(self) -> Workload:
        c = self.challenger
        pool = self.pool
        s = self.solver
        role = self._planned_roles()
        proposed = role["challenger"].conversations(c.prompts_per_step, c.group_size)
        answered = role["solver"].conversations(s.prompts_per_step, s.group_size)
        graded = role["grade"].conversations(answered.number * CRITERIA)
        solving = Step(s.steps, (answered, graded), PlannedUpdate(s.update, (answered,)))
        if pool.given:
            return Workload((solving,))
        asking = Step(
            c.steps,
            self._judged(role, proposed, c.solver_rollouts),
            PlannedUpdate(c.update, (proposed,)),
        )
        draws = draws_until(
            s.steps * s.prompts_per_step, KEPT, pool.candidates_per_batch, pool.batches_at_once
        )
        pooling = [
            Step(1, self._judged(role, role["challenger"].conversations(n), pool.solver_rollouts))
            for n in draws
        ]
        if c.is_frozen(self.first_iteration):
            return Workload((*pooling, solving))
        return Workload((asking, *pooling, solving))

    def _judged(
        self, role: dict[str, PlannedRole], proposed: PlannedConversations, answers: int
    ) -> tuple[PlannedConversations, ...]:
        """The conversations of l.7-11 for the proposed tasks."""
        gates = len(self.judge.applied_gates)
        good = GATED * proposed.number
        answered = role["solver"].conversations(good, answers)
        graded = role["grade"].conversations(answered.number * CRITERIA)
        gated = (role["gate"].conversations(proposed.number * gates),) if gates else ()
        return (proposed, *gated, role["rubric"].conversations(good), answered, graded)

    def _planned_roles(self) -> dict[str, PlannedRole]:
        talk = self.dialogues
        if talk.reasoning:
            turn = 900
            gate = 350
            rubric = 1500
            verdict = 350
        else:
            turn = 300
            gate = 150
            rubric = 600
            verdict = 200
        search_result = talk.result_tokens + 60
        challenger = Lengths(900, turn, 3.5, added=search_result, by_turn=talk.reasoning)
        solver_turns = min(3.0, talk.solver_turns)
        solver = Lengths(400, turn, solver_turns, added=search_result, by_turn=talk.reasoning)
        roles = (
            PlannedRole("challenger", challenger, "challenger"),
            PlannedRole("solver", solver, "solver"),
            PlannedRole("gate", Lengths(900, gate)),
            PlannedRole("rubric", Lengths(2250, rubric)),
            PlannedRole("grade", Lengths(1000, verdict, cached=0.7)),
        )
        return {role.name: role for role in roles}
