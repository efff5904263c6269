"""What an iteration of a method asks and trains: who is asked how often, at what lengths, and which updates follow.

A method says it in `flows/METHOD/workload.py`, a function `workload(cfg)` of its configuration. Lengths in it are
assumptions about a model of some billions of parameters; an earlier run's own replace them. Roles are called as the
labels of their tables are, without the number of a round.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.training.grpo import GRPOSettings

BASE = "base"


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a role's conversations."""

    prompt: float
    sampled: float  # in a turn
    turns: float = 1.0
    added: float = 0.0  # put between two turns
    cached: float = 0.0  # share of the prompt that an earlier prompt began with
    by_turn: bool = False  # trained turn by turn: a datum each

    @property
    def whole(self) -> float:
        """Tokens of the conversation when it ends."""
        return self.prompt + self.turns * self.sampled + (self.turns - 1) * self.added

    @property
    def datums(self) -> float:
        return self.turns if self.by_turn else 1.0

    @property
    def datum_tokens(self) -> float:
        """Of a turn among several: what was said before it is in its prompt, on average half of all."""
        return (self.prompt + self.whole) / 2 if self.by_turn and self.turns > 1 else self.whole


@dataclass(frozen=True)
class Asked:
    """`n` conversations for each of `prompts` prompts, by a model: a player's name, or the base."""

    role: str
    prompts: float
    n: float = 1.0
    model: str = BASE

    @property
    def number(self) -> float:
        return self.prompts * self.n


@dataclass(frozen=True)
class Update:
    """An update of a player on so many conversations of each role."""

    player: str
    settings: GRPOSettings
    conversations: Mapping[str, float]


@dataclass(frozen=True)
class Step:
    """What is done `times` times in an iteration: stages one after another, then an update."""

    name: str
    times: float
    asked: tuple[Asked, ...]
    update: Update | None = None


@dataclass(frozen=True)
class Workload:
    """An iteration."""

    lengths: Mapping[str, Lengths]
    steps: tuple[Step, ...]

    def at(self, measured: Mapping[str, dict[str, float]]) -> Workload:
        """The same at lengths that were measured, for the roles that there are some of."""
        known = {role: replace(self.lengths[role], **found) for role, found in measured.items() if role in self.lengths}
        return replace(self, lengths={**self.lengths, **known})

    def group(self, role: str) -> float:
        """Conversations to a prompt of a role."""
        return max((asked.n for step in self.steps for asked in step.asked if asked.role == role), default=1.0)

    @property
    def num_updates(self) -> float:
        return sum(step.times for step in self.steps if step.update)

    @property
    def players(self) -> int:
        return len({step.update.player for step in self.steps if step.update})


def workload_of(cfg: Any) -> Workload | None:
    """What the method of a configuration says, or None where it says nothing."""
    package = type(cfg).__module__.rpartition(".")[0]
    found = importlib.util.find_spec(f"{package}.workload") if package else None
    return importlib.import_module(found.name).workload(cfg) if found else None
