"""The workload of an iteration: how many conversations each role has, their lengths, and the
updates that follow.

A method's configuration returns it from `workload()`. Its lengths are assumptions for a model with
a few billion parameters, unless lengths measured in an earlier run replace them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tasks.sample import batches_needed
from tasks.training.grpo import GRPOSettings

BASE = "base"


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a role's conversations."""

    prompt: float
    sampled: float  # in a turn
    turns: float = 1.0
    added: float = 0.0  # between two turns, by the environment
    cached: float = 0.0  # share of the prompt that is a prefix of an earlier prompt
    by_turn: bool = False  # each turn is a separate datum

    @property
    def whole(self) -> float:
        """Tokens of the whole conversation."""
        return self.prompt + self.turns * self.sampled + (self.turns - 1) * self.added

    @property
    def datums(self) -> float:
        """The number of data for the trainer that one conversation becomes."""
        if self.by_turn:
            return self.turns
        return 1.0

    @property
    def datum_tokens(self) -> float:
        """Tokens of a datum.

        If each turn is a datum, its prompt holds the preceding turns: on average half of all turns.
        """
        if self.by_turn and self.turns > 1:
            return (self.prompt + self.whole) / 2
        return self.whole


@dataclass(frozen=True)
class PlannedRole:
    """A role in a plan. `model` is the player that it samples from, or the base.

    `labels` are those of the role's tables, without round numbers; by default, the role's name is
    the only one. MAE's solver has two, for trials of new questions and for answers to known ones:
    PlannedRole("solver", ..., labels=("solver", "trial"))
    """

    name: str
    lengths: Lengths
    model: str = BASE
    labels: tuple[str, ...] = ()

    @property
    def table_labels(self) -> tuple[str, ...]:
        """The labels of the role's tables: `labels`, or else its name."""
        return self.labels or (self.name,)

    def conversations(self, prompts: float, n: float = 1.0) -> PlannedConversations:
        """`n` conversations for each of `prompts` prompts."""
        return PlannedConversations(self, prompts, n)


@dataclass(frozen=True)
class PlannedConversations:
    """`n` conversations of a role for each of `prompts` prompts."""

    role: PlannedRole
    prompts: float
    n: float

    @property
    def number(self) -> float:
        """The total number of conversations."""
        return self.prompts * self.n


@dataclass(frozen=True)
class PlannedUpdate:
    """An update of the player that sampled these conversations."""

    settings: GRPOSettings
    conversations: tuple[PlannedConversations, ...]

    @property
    def player(self) -> str:
        """The player that sampled the first of the conversations."""
        return self.conversations[0].role.model


@dataclass(frozen=True)
class Step:
    """A sequence of stages, then an update; an iteration repeats this `times` times."""

    times: float
    conversations: tuple[PlannedConversations, ...]
    update: PlannedUpdate | None = None


def draws_until(target: int, kept: float, size: int, most: int) -> Iterator[int]:
    """The number of candidates in each draw until `target` are kept, if a share `kept` of them is.

    A draw is as many batches of `size` as are certainly needed, at most `most` batches.

    >>> list(draws_until(1000, 0.5, 100, 1)) == [100] * 20, list(draws_until(1000, 0.5, 100, 8))
    (True, [800, 600, 300, 200, 100])
    """
    missing = float(target)
    while missing > 0:
        drawn = size * batches_needed(missing, size, most)
        yield drawn
        missing -= kept * drawn


@dataclass(frozen=True)
class Workload:
    """The steps of an iteration. Lengths in `measured`, by role, replace the assumed ones."""

    steps: tuple[Step, ...]
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def at(self, measured: Mapping[str, Mapping[str, float]]) -> Workload:
        """The same workload with the lengths `measured` in a run: for each role, values for fields
        of `Lengths`."""
        return replace(self, measured=measured)

    @cached_property
    def lengths(self) -> dict[str, Lengths]:
        """The lengths of each role's conversations, whether sampled or given."""
        sampled = [each for step in self.steps for each in step.conversations]
        trained = [each for step in self.steps if step.update for each in step.update.conversations]
        roles = {each.role.name: each.role for each in (*trained, *sampled)}
        return {
            name: replace(role.lengths, **self.measured.get(name, {}))
            for name, role in roles.items()
        }

    def group(self, role: str) -> float:
        """The most conversations that the role with this name has from one prompt in any step; 1 if
        no step samples it."""
        return max(
            (
                each.n
                for step in self.steps
                for each in step.conversations
                if each.role.name == role
            ),
            default=1.0,
        )

    @property
    def num_updates(self) -> float:
        """The number of updates in an iteration, over all players."""
        return sum(step.times for step in self.steps if step.update)

    @property
    def players(self) -> int:
        """The number of players that are trained."""
        return len({step.update.player for step in self.steps if step.update})
