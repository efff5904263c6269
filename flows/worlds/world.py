"""What a built-in world offers: documents to learn from, held-out tasks, and the truth about both.

A built-in world is synthetic, so an oracle knows every right answer. A run's configuration may name
its world (`world`), which `flows.worlds.built_in.open_world` opens. Methods and the blocks that
they share use `run.world` and never name a particular world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from corpus_prep.search.settings import EmbeddingConfig
    from tasks.judge import Oracle
    from tasks.monitors.audit import Sound
    from tasks.monitors.monitor import Truth
    from tasks.needles import Grid
    from tasks.processes.comparisons import Compare
    from warehouse.schemas import Task
    from warehouse.store import Place, Table

BENCHMARK = "micro"  # the held-out tasks of any world, in `evaluation.benchmark` and in stored rows
CORPUS = "micro"  # the corpus with all of a world's documents, if a method's `corpus` names one
PROMPTS = "micro"  # the set of prompts in the fixed phrases that the worlds' models understand


class Documents(Protocol):
    """Make the documents of a corpus. `size` counts documents or, in the world of clusters,
    clusters."""

    def __call__(
        self,
        place: Place,
        corpus: str = CORPUS,
        *,
        seed: int,
        size: int,
        embedding: EmbeddingConfig | None = None,
        label: str | None = None,
    ) -> Table: ...


class Memberships(Protocol):
    """Make the table of which document is in which cluster, for the documents with the same seed
    and size."""

    def __call__(self, place: Place, *, seed: int, size: int) -> Table: ...


class HeldOut(Protocol):
    """Make one table of the held-out tasks, which a seed and their number determine."""

    def __call__(self, place: Place, *, seed: int, num_tasks: int) -> Table: ...


class NeedleTable(Protocol):
    """Make one table of a grid's needles."""

    def __call__(self, place: Place, *, grid: Grid, seed: int) -> Table: ...


@dataclass(frozen=True)
class Needles:
    """The world's own needles to hide in its documents, for `tasks.needles`."""

    tasks: NeedleTable
    sentences: NeedleTable
    # (needle, sentence): whether a sentence of the world's documents says nothing about the
    # needle's entity, so it may appear together with the needle
    foreign: Callable[[str, str], bool]


@dataclass(frozen=True)
class RubricTruth:
    """What is true in the documents of one seed and size, for tasks with rubrics."""

    oracle: Oracle  # whether an answer truly meets a criterion
    sound: Sound  # whether a task asks for something that the documents state


@dataclass(frozen=True)
class World:
    """A built-in world. What it lacks is None or empty.

    Tables of a world:
        corpora: the names by which a method's `corpus` requests its documents.
        documents: a corpus, with its index.
        memberships: which document is in which cluster.
        tasks: the held-out tasks; the next three tables are about the same tasks.
        contexts: the context shown with each task, one document per task.
        evidence: the sentences that an answer should quote, as criteria.
        rubrics: the criteria that a perfect answer meets.
        num_held_out_documents: the number of documents that the held-out tasks are about and that
            are searched to answer them; they have the held-out tasks' seed.

    The truth about a world:
        oracle: whether an answer to a task, or the letter of an option, is true.
        sound: whether a task follows the world's grammar and its reference, if any, is true.
        rubric_truth: both of these for tasks with rubrics, where they depend on the documents.
        compare: whether an answer to a held-out task equals its reference.
        mark: the mark, 0..1, that quotes for a question deserve.
        gates: rule-based quality gates, by their names in settings.
        describe: metrics of a question that a model wrote; none if it does not follow the grammar.

    training: the world with the tasks to train on, if held-out tasks have another distribution.
    """

    name: str
    benchmark: str = BENCHMARK
    corpora: tuple[str, ...] = ()
    documents: Documents | None = None
    memberships: Memberships | None = None
    tasks: HeldOut | None = None
    contexts: HeldOut | None = None
    evidence: HeldOut | None = None
    rubrics: HeldOut | None = None
    num_held_out_documents: int | None = None
    oracle: Truth | None = None
    sound: Sound | None = None
    rubric_truth: Callable[[int, int], RubricTruth] | None = None
    compare: Compare | None = None
    mark: Callable[[str, Sequence[str]], float | None] | None = None
    gates: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    describe: Callable[[Task], Iterator[tuple[str, float]]] | None = None
    needles: Needles | None = None
    training: World | None = None

    @property
    def for_training(self) -> World:
        """The world whose tasks and documents are trained on."""
        return self.training or self
