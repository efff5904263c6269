"""Search Self-Play's settings. The defaults are the released script's where it has them; flow.py
lists the exceptions. Profiles hold departures."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from corpus_prep.search.settings import EmbeddingConfig
from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, NumberKey, Settings, Shares
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from tasks.normalise import Scheme
from tasks.rollouts.search_syntax import Syntax
from tasks.training.grpo import GRPOSettings

BY_RULE = 0.6  # a plan assumes that this share of questions passes the rules
MEAN_TURNS = 4.0  # and that a conversation with searches has this many turns


class Models(profile.Models):
    """The base is the policy that learns."""

    checker: str | None = Field(
        default=None,
        description=(
            "model that answers questions with the documents that their Proposer found; it is not"
            " trained. null: the policy"
        ),
    )


class Dialogues(profile.Dialogues):
    """How the model family searches, and how long a conversation may get."""

    search_syntax: Literal["tags", "qwen", "olmo"] = Field(
        default="tags",
        description='how the model family writes a search; `lines` prompts use "Search:"',
    )
    response_tokens: int = Field(
        default=2048, ge=1, description="maximum number of tokens per assistant turn"
    )
    prompt_tokens: int = Field(
        default=4096, ge=1, description="longer prompts are not sampled from"
    )
    context_tokens: int = Field(
        default=12_288,
        ge=1,
        description="maximum number of tokens of a conversation, including the prompt",
    )
    proposer_turns: int = Field(default=10, ge=2, description="maximum number of assistant turns")
    solver_turns: int = Field(
        default=10,
        ge=1,
        description="maximum number of assistant turns; the last one has no search",
    )
    documents_per_query: int = Field(
        default=3, ge=1, description="documents returned by one search"
    )
    result_tokens: int = Field(
        default=600,
        ge=1,
        description="maximum number of tokens of the documents of one search, in total",
    )


class Proposer(Settings):
    """What is asked for, the rules for a valid question, and the reward of an invalid one."""

    hops: Shares[NumberKey] = Field(
        default={2: 1, 3: 1, 4: 1},
        description="n: number of searches that a question should need; numbers with their shares",
    )
    max_answer_words: int = Field(
        default=10,
        ge=1,
        description=(
            "longer titles do not become answers; a document without a title uses the beginning of"
            " its text"
        ),
    )
    min_words: int = Field(default=10, ge=1, description="minimum number of words in a question")
    max_characters: int = Field(
        default=1000, ge=1, description="maximum number of characters in a question"
    )
    min_searches: int = Field(
        default=2, ge=1, description="minimum number of searches by the Proposer"
    )
    invalid_reward: float = Field(default=0.0, le=0, description="reward for an invalid question")
    advantage: Scheme = Field(
        default="none",
        description=(
            '"none": the reward itself (REINFORCE without a baseline); "centre": the reward minus'
            " the mean of the step"
        ),
    )


class Check(Settings):
    """The check with documents: a question that cannot be answered from the documents that its
    Proposer found has a wrong answer, or none."""

    enabled: bool = Field(default=True, description="false is the ablation: the rules decide alone")
    noise: int = Field(
        default=4, ge=0, description="number of other proposals whose documents are mixed in"
    )
    document_tokens: int = Field(
        default=256,
        ge=1,
        description="number of tokens of each document to show, from its beginning",
    )
    prompt_tokens: int = Field(
        default=11_264,
        ge=1,
        description=(
            "maximum number of tokens of the prompt, excluding the chat template's: documents of"
            " other proposals are left out, then its own are cut, until it fits"
        ),
    )
    response_tokens: int = Field(
        default=512, ge=1, description="maximum number of tokens of the answer"
    )
    temperature: float = Field(default=0.1, ge=0, description="sampling temperature of the answer")


class Update(GRPOSettings):
    """The released script's: an upper clip bound above the lower one, and a small KL term."""

    epsilon_high: float = Field(default=0.285, gt=0)
    beta: float = Field(default=0.01, ge=0)


class Config(MethodSettings):
    """A whole run: `iterations` times `steps` updates."""

    worlds: ClassVar = ("micro",)

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    corpus: str = Field(
        description="documents with titles: a path, a dataset, a prepared corpus or the built-in"
        " world; all are searched, and a title is an answer"
    )
    corpus_documents: int = Field(
        default=400, ge=20, le=400, description="number of documents in the built-in world"
    )
    world_seed: int = Field(default=4242, ge=0, description="seed of the built-in world")
    embedding: EmbeddingConfig | None = Field(
        default=None, description="embedding model for the search; null: BM25"
    )
    iterations: int = Field(default=20, ge=1)
    steps: int = Field(
        default=10, ge=1, description="steps per iteration, which begins with an empty buffer"
    )
    questions: int = Field(
        default=256, ge=1, description="questions requested per step, each sampled once"
    )
    answers: int = Field(default=5, ge=2, description="G: answers per question, compared by GRPO")
    trained: tuple[Literal["proposer", "solver"], ...] = Field(
        default=("proposer", "solver"),
        min_length=1,
        description="roles that learn; training only one is the ablation",
    )
    replay: bool = Field(
        default=True,
        description="earlier valid questions replace invalid ones; false: they are not replaced",
    )
    dialogues: Dialogues = Dialogues()
    proposer: Proposer = Proposer()
    check: Check = Check()
    permuted: bool = Field(
        default=False, description="control: the rewards of a question's answers are permuted"
    )
    update: Update = Update()
    match: Comparing = Comparing()

    @property
    def search_syntax(self) -> Syntax:
        """How a search is written: as lines, if replies are read line by line."""
        if self.reads_lines:
            return "lines"
        return self.dialogues.search_syntax

    def workload(self) -> Workload:
        found = self.dialogues.result_tokens + 40.0
        proposer_turns = min(MEAN_TURNS, self.dialogues.proposer_turns)
        of_a_proposal = (proposer_turns - 1) * self.dialogues.documents_per_query
        shown = (1 + self.check.noise) * of_a_proposal * self.check.document_tokens
        check_tokens = min(150.0 + shown, self.check.prompt_tokens)
        solver_turns = min(MEAN_TURNS, self.dialogues.solver_turns)
        proposer = PlannedRole("proposer", Lengths(500, 200, proposer_turns, added=found), "policy")
        solver = PlannedRole("solver", Lengths(250, 150, solver_turns, added=found), "policy")
        checker = PlannedRole("checker", Lengths(check_tokens, 100), "policy")
        asked = proposer.conversations(self.questions)
        checked = checker.conversations(BY_RULE * self.questions)
        answered = solver.conversations(self.questions, self.answers)
        conversations = {"proposer": asked, "solver": answered}
        trained = tuple(conversations[role] for role in self.trained)
        sampled = (asked, checked, answered) if self.check.enabled else (asked, answered)
        return Workload((Step(self.steps, sampled, PlannedUpdate(self.update, trained)),))
