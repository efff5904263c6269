"""Settings of table-questions: what its questions are about, and the models that write them."""

from __future__ import annotations

from pydantic import Field

from corpus_prep.clusters.segments import Splitting
from flows.settings import profile
from flows.settings.profile import Comparing, Dialogues, MethodSettings
from flows.settings.workload import Lengths, PlannedRole, Step, Workload
from tasks.corpus.parts import TASK_TYPES


class Models(profile.Models):
    """The base writes the questions and checks them."""

    writer: str | None = Field(
        default=None, description="model that writes the questions; null: the base"
    )
    checker: str | None = Field(
        default=None, description="model that answers the questions; null: the base"
    )


class Config(MethodSettings):
    """One pass over a corpus: nothing is trained."""

    models: Models  # pyright: ignore[reportIncompatibleVariableOverride]
    iterations: int = Field(
        default=1, ge=1, le=1, description="always 1: one pass over the corpus, without training"
    )
    corpus: str = Field(
        description="long articles: a path, hf:owner/name?... or a run of prepare-corpus"
    )
    tokenizer: str | None = Field(
        default=None, description="tokenizer that measures lengths; null: the base's"
    )
    splitting: Splitting = Splitting(max_tokens=2_000, min_chars=32_768)
    task_types: tuple[str, ...] = Field(
        default=TASK_TYPES, description="types of questions to ask, in turn"
    )
    count: int = Field(
        default=960, ge=1, description="number of questions to request; the types take turns"
    )
    answers: int = Field(
        default=2,
        ge=1,
        description="answers per question with its parts, and as many without; all of them count",
    )
    dialogues: Dialogues = Dialogues()
    match: Comparing = Comparing()

    def workload(self) -> Workload:
        prompt = 2 * self.splitting.max_tokens
        reply = 800
        writer = PlannedRole("writer", Lengths(prompt, reply)).conversations(self.count)
        reader = PlannedRole("reader", Lengths(prompt, reply))
        guesser = PlannedRole("guesser", Lengths(100, reply))
        answers = (
            reader.conversations(self.count, self.answers),
            guesser.conversations(self.count, self.answers),
        )
        return Workload((Step(1, (writer, *answers)),))
