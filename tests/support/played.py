"""Play a method with real engines and trainers in a separate process, without Prefect's server."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runtime.store_root import SOURCE
from warehouse.query import query
from warehouse.store import Store

RUN = "r"
SCRIPT = """
from flows.runtime.request import Request
from flows.{method}.flow import {method}_iteration

if __name__ == "__main__":
    {method}_iteration.run(Request(flow="{method}-iteration", profile="micro", run="{run}", overrides={settings!r}))
"""  # noqa: E501


@dataclass(frozen=True)
class Played:
    """The run `r` of a method's profile micro, with `settings` changed, in its own folder."""

    folder: Path
    method: str
    settings: dict[str, Any]

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def play(self) -> str:
        """Play or resume the run; returns its log."""
        script = self.folder / "play.py"
        script.write_text(SCRIPT.format(method=self.method, run=RUN, settings=self.settings))
        environment = {
            **os.environ,
            "SELFPLAY_STORE": str(self.root),
            "PYTHONPATH": str(SOURCE),
            "PYTHONFAULTHANDLER": "1",  # a process that dies by a signal says where
        }
        command = [sys.executable, str(script)]
        done = subprocess.run(
            command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stderr

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return query(self.root, sql)

    def started(self) -> dict[str, Any]:
        """When each of the run's tables was begun."""
        return {table.address: table.recipe["started_at"] for table in Store(self.root).tables(RUN)}
