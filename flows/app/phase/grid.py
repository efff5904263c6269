"""The cells of the grid, and the requests for their runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flows.app.command.parameters import find_method
from flows.runtime.request import Request
from flows.settings import profile as profiles
from flows.settings.profile import MethodSettings

GRID = Path(__file__).with_name("grid.toml")
CLEAN = "clean"  # the shape of the cells whose verdicts are the truth
OWN = "own"  # the shape of the cells whose verdicts are the method's own


@dataclass(frozen=True)
class Cell:
    """One point of the diagram: errors of one `shape` in a `share` of cases (`tasks/noise.py`)."""

    method: str
    shape: str
    share: float

    @property
    def errors(self) -> dict[str, Any]:
        """The settings that give a run these errors."""
        if self.shape == OWN:
            return {"errors.shape": "none"}
        if self.shape == CLEAN:
            return {"errors.shape": "independent", "errors.share": 0.0}
        return {"errors.shape": self.shape, "errors.share": self.share}

    def run_name(self, seed: int) -> str:
        """
        >>> Cell("spice", "task", 0.4).run_name(2)
        'phase-spice-task-0.4-2'
        """
        return f"phase-{self.method}-{self.shape}-{self.share:g}-{seed}"


@dataclass(frozen=True)
class Grid:
    """Methods, shapes, shares and seeds, and what all runs have in common."""

    methods: Mapping[str, Mapping[str, Any]]
    shapes: Sequence[str]
    shares: Sequence[float]
    seeds: int
    settings: Mapping[str, Any]
    collapse_errors: float
    healthy_gain: float
    false_alarms: float
    limits_set: datetime

    @classmethod
    def load(cls, path: Path = GRID) -> Grid:
        """Read the grid from a file. Raises TypeError for a key that a grid does not have."""
        return cls(**tomllib.loads(path.read_text(encoding="utf-8")))

    def cells(self) -> Iterator[Cell]:
        """Every cell, clean ones first."""
        for method in self.methods:
            yield Cell(method, CLEAN, 0.0)
            yield Cell(method, OWN, 0.0)
        for share in self.shares:
            for shape in self.shapes:
                for method in self.methods:
                    yield Cell(method, shape, share)

    def limits(self, method: str) -> Iterator[tuple[str, float | None]]:
        """The monitors' limits in a method's profile."""
        played = self.methods[method]
        config = find_method(f"{method}-iteration").config
        cfg = profiles.load(config, played["profile"], dict(played["settings"]))
        assert isinstance(cfg, MethodSettings)
        yield from cfg.monitor

    def request(self, cell: Cell, seed: int) -> Request:
        """The request for a cell's run with one seed, with every alarm off."""
        method = self.methods[cell.method]
        flow = f"{cell.method}-iteration"
        settings = {
            **self.settings,
            **no_alarms(find_method(flow).config),
            **method["settings"],
            **cell.errors,
            "seed": seed,
        }
        return Request(
            flow=flow, profile=method["profile"], run=cell.run_name(seed), overrides=settings
        )


def no_alarms(config: type[Any]) -> dict[str, None]:
    """The settings that switch off every limit of a method's monitors.

    Raises TypeError for a flow that trains no model.
    """
    if not issubclass(config, MethodSettings):
        raise TypeError(f"{config.__name__} has no monitors")
    limits = config.model_fields["monitor"].annotation
    assert isinstance(limits, type) and issubclass(limits, BaseModel)
    return {f"monitor.{name}": None for name in limits.model_fields}
