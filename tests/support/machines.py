"""Engines and a trainer that the runs of a module share: starting them takes longer than a short
run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flows.runtime.machines import Machines
from flows.settings.profile import MethodSettings


class Shared(Machines):
    """Machines that outlive their run; the next run reuses them if its configuration asks for
    the same."""

    made: ClassVar[list[tuple[tuple[Any, ...], Machines]]] = []

    @classmethod
    def of(cls, cfg: MethodSettings, logs: Path, api: Any = None) -> Machines:
        asked = (
            cfg.engine,
            cfg.judge_engine,
            cfg.num_engines,
            cfg.trainer_processes,
            cfg.resident_trainer,
            cfg.keep_checkpoints,
            api,
        )
        found = next((machines for wanted, machines in cls.made if wanted == asked), None)
        if found is None:
            found = super().of(cfg, logs, api)
            cls.made.append((asked, found))
        return found

    def close(self) -> None:
        """Do nothing: machines are closed at the module's end."""


@contextlib.contextmanager
def shared_machines() -> Iterator[None]:
    """Let runs in this process share their machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.method.Machines", Shared)
        try:
            yield
        finally:
            for _, machines in Shared.made:
                Machines.close(machines)
            Shared.made.clear()
