"""A flow's request, and the default name of a run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from warehouse.address import check_run_name

DEMO_FLOW = "scope-iteration"


def default_run(flow: str, profile: str) -> str:
    """All methods share one store, so a name has method and profile; the demo's runs have the profile alone.

    >>> default_run("scope-iteration", "micro"), default_run("spell-iteration", "micro")
    ('micro', 'spell-micro')
    """
    return profile if flow == DEMO_FLOW else f"{flow.removesuffix('-iteration')}-{profile}"


class Request(BaseModel):
    """A request to a flow; kept beside the run, so that `selfplay rerun` can repeat it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    flow: str
    profile: str
    run: Annotated[str, AfterValidator(check_run_name)]
    overrides: dict[str, Any] | None = None
    corpus: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {**(self.overrides or {}), **({"corpus": self.corpus} if self.corpus else {})}


class RerunRequest(BaseModel):
    """Stages to rerun: `stage` is a table's name, as `selfplay status RUN` shows it, or a pattern of names."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    stage: str
    iteration: int | None = Field(default=None, description="None takes all")
    step: int | None = Field(default=None, description="None takes all")
    dependents: bool = Field(default=False, description="also their dependents, even if the result is unchanged")
    only: bool = Field(default=False, description="nothing else: the flow stops there")
