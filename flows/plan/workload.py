"""The workload of an iteration: how many conversations each role has, their lengths, and the updates that follow.

A method's configuration returns it from `workload()`. Its lengths are assumptions about a model of some billions of
parameters, unless lengths measured in an earlier run replace them. A role's name is the label of its tables, without
the number of a round.
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
    by_turn: bool = False  # each turn is a datum of its own

    @property
    def whole(self) -> float:
        """Tokens of the conversation when it ends."""
        return self.prompt + self.turns * self.sampled + (self.turns - 1) * self.added

    @property
    def datums(self) -> float:
        return self.turns if self.by_turn else 1.0

    @property
    def datum_tokens(self) -> float:
        """Tokens of a datum. If each turn is one, its prompt holds the turns before it: on average half of them."""
        return (self.prompt + self.whole) / 2 if self.by_turn and self.turns > 1 else self.whole


@dataclass(frozen=True)
class PlannedRole:
    """A role in a plan. `model` is the player that it samples from, or the base."""

    name: str
    lengths: Lengths
    model: str = BASE

    def asked(self, prompts: float, n: float = 1.0) -> Asked:
        """`n` conversations for each of `prompts` prompts."""
        return Asked(self, prompts, n)


@dataclass(frozen=True)
class Asked:
    """`n` conversations of a role for each of `prompts` prompts."""

    role: PlannedRole
    prompts: float
    n: float

    @property
    def number(self) -> float:
        return self.prompts * self.n


@dataclass(frozen=True)
class PlannedUpdate:
    """An update of the player that sampled these conversations."""

    settings: GRPOSettings
    conversations: tuple[Asked, ...]

    @property
    def player(self) -> str:
        return self.conversations[0].role.model


@dataclass(frozen=True)
class Step:
    """Stages one after another, then an update; an iteration does this `times` times."""

    times: float
    asked: tuple[Asked, ...]
    update: PlannedUpdate | None = None


def draws_until(target: int, kept: float, size: int, most: int) -> Iterator[int]:
    """The candidates of each draw until `target` are kept, if a share `kept` of them is. A draw is as many batches of
    `size` as are certainly needed, at most `most`.

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
        return replace(self, measured=measured)

    @cached_property
    def lengths(self) -> dict[str, Lengths]:
        """The lengths of each role's conversations."""
        roles = {asked.role.name: asked.role for step in self.steps for asked in step.asked}
        return {name: replace(role.lengths, **self.measured.get(name, {})) for name, role in roles.items()}

    def group(self, role: str) -> float:
        """Conversations per prompt of a role."""
        return max((asked.n for step in self.steps for asked in step.asked if asked.role.name == role), default=1.0)

    @property
    def num_updates(self) -> float:
        return sum(step.times for step in self.steps if step.update)

    @property
    def players(self) -> int:
        return len({step.update.player for step in self.steps if step.update})
