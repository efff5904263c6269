"""A flow's request, and the default name of a run."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from warehouse.address import check_run_name

DEMO_FLOW = "scope-iteration"
_NOT_IN_A_NAME = re.compile(r"[^\w.+=@-]+")


def default_run(flow: str, profile: str, corpus: str | None = None) -> str:
    """The default name of a run: method and profile, since all methods share one store, and the
    corpus if the request names one. The demo's runs are named after the profile alone.

    >>> default_run("scope-iteration", "micro"), default_run("spell-iteration", "micro")
    ('micro', 'spell-micro')
    >>> default_run("spell-iteration", "smollm2", "./my docs/")
    'spell-smollm2-my-docs'
    """
    name = profile
    if flow != DEMO_FLOW:
        name = f"{flow.removesuffix('-iteration')}-{profile}"
    if of_corpus := _NOT_IN_A_NAME.sub("-", PurePath(corpus or "").stem).strip("-"):
        name = f"{name}-{of_corpus[:40]}"
    return name


class Request(BaseModel):
    """A request to a flow, stored beside the run so that `selfplay rerun` can repeat it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    flow: str
    profile: str
    run: Annotated[str, AfterValidator(check_run_name)]
    overrides: dict[str, Any] | None = None
    corpus: str | None = None
    folder: str | None = Field(default=None, description="folder of a method outside this project")

    @property
    def settings(self) -> dict[str, Any]:
        """The overrides, including the corpus."""
        settings = dict(self.overrides or {})
        if self.corpus:
            settings["corpus"] = self.corpus
        return settings


class RerunRequest(BaseModel):
    """Stages to rerun: `stage` is a table's name, as `selfplay status RUN` shows it, or a
    pattern of names."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    stage: str
    iteration: int | None = Field(default=None, description="only this iteration; null: all")
    step: int | None = Field(default=None, description="only this step; null: all")
    dependents: bool = Field(
        default=False, description="also rerun dependents, even if the result is unchanged"
    )
    only: bool = Field(default=False, description="rerun nothing else; the flow stops there")
