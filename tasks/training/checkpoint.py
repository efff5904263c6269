"""Checkpoints of optimizer steps during an update."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.training.grpo import StepMetrics


@dataclass(frozen=True)
class Checkpoint:
    """An optimizer step of an unfinished update.

    Its folder holds the weights or the adapter, the optimizer state, and the metrics of all `steps`
    so far.
    """

    folder: Path
    steps: list[StepMetrics]

    STEPS: ClassVar[str] = "steps.json"

    @classmethod
    def last(cls, checkpoints: Path | None) -> Checkpoint | None:
        """The latest checkpoint in a folder; half-written ones of a killed update are removed."""
        if checkpoints is None or not checkpoints.exists():
            return None
        for part in checkpoints.glob("*.part"):
            shutil.rmtree(part, ignore_errors=True)
        folders = sorted(checkpoints.glob("step-*"))
        if not folders:
            return None
        latest = folders[-1]
        steps = json.loads((latest / cls.STEPS).read_text())
        return cls(latest, [StepMetrics.model_validate(step) for step in steps])

    @classmethod
    def publish(cls, part: Path, number: int, steps: list[StepMetrics]) -> None:
        """Publish a folder `*.part` that holds policy and optimizer state as a checkpoint.

        Older checkpoints are removed.
        """
        (part / cls.STEPS).write_text(json.dumps([step.model_dump(mode="json") for step in steps]))
        part.rename(part.parent / f"step-{number:06d}")
        for older in sorted(part.parent.glob("step-*"))[:-1]:
            shutil.rmtree(older)

    @property
    def policy(self) -> Path:
        """The folder of the weights or of the adapter."""
        return self.folder / "policy"

    @property
    def optimizer(self) -> Path:
        """The folder of the optimizer state."""
        return self.folder / "optimizer"
