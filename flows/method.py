"""`@method` turns a paper's Algorithm 1, written as a function of a `Run`, into a method and a Prefect flow.

A method is a folder beside this file: `config.py` with its `Config`, `profiles/`, `prompts/`, and `flow.py` with that
function. Each of its profiles is a deployment; `selfplay run`, `rerun`, `why`, the views and the report work on it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from flows import profile as profiles
from flows.machines import Machines, open_models, register
from flows.plan.preflight import check_machine
from flows.profile import MethodSettings
from flows.record import check_left, open_run
from flows.request import Request, RerunRequest, default_run
from flows.run import Run
from flows.service.site import open_store, store_root
from flows.tracking import tracked
from tasks.engines.chat import ChatFleet
from warehouse.rerun import Inquiry, Unmade
from warehouse.store import Store

Asking = TypeVar("Asking", bound=Inquiry)
log = logging.getLogger("selfplay")


@dataclass(frozen=True)
class Method:
    """A flow's name, its configuration, and the algorithm that it plays."""

    name: str
    config: type[profiles.Settings]
    play: Callable[[Run[Any]], Any]

    def __call__(
        self,
        profile: str = "micro",
        run: str | None = None,
        overrides: dict[str, Any] | None = None,
        corpus: str | None = None,
        rerun: RerunRequest | None = None,
        force: bool = False,
    ) -> str:
        """Play a run and return its name. `rerun` names stages to rerun; `force` lets a run continue with another
        configuration than the one it began with."""
        name = run or default_run(self.name, profile)
        self.run(Request(flow=self.name, profile=profile, run=name, overrides=overrides, corpus=corpus), rerun, force)
        return name

    @functools.cached_property
    def flow(self) -> Any:
        """The same call as a Prefect flow. Made on demand, because Prefect takes a second to import."""
        from prefect import flow

        about: Any = {"name": self.name, "description": self.play.__doc__, "flow_run_name": self._name_of_flow_run}
        return flow(**about, persist_result=False)(self.__call__)

    def _name_of_flow_run(self) -> str:
        from prefect.runtime import flow_run

        asked = flow_run.parameters
        return asked.get("run") or default_run(self.name, asked.get("profile", "micro"))

    def run(self, asked: Request, rerun: RerunRequest | None = None, force: bool = False, loads: bool = True) -> None:
        """Play a run; repeating the same request resumes where it stopped. `loads`: it may load models.

        Raises ValueError, before any model is loaded, for a wrong setting, a machine that the plan does not fit, a
        missing model or API key, stages to rerun that do not exist, or a run that was made with another
        configuration (unless `force`).
        """
        cfg = profiles.load(self.config, asked.profile, asked.settings)
        if isinstance(cfg, MethodSettings):
            check_machine(cfg, store_root(), loads)
            if cfg.api:
                cfg.api.key()
        with (
            open_run(asked, cfg, rerun, force) as store,
            tracked(getattr(cfg, "tracking", "none"), store, asked.run, cfg.model_dump(mode="json")),
            opened(cfg, store, asked.run) as run,
        ):
            self.play(run)
            check_left(store, asked.run)

    def inquire(self, asked: Request, settings: dict[str, Any]) -> Inquiry:
        """What a run would do now: the stages that it would reach, and why they would be rebuilt."""
        return self.play_by(Inquiry(), asked, settings)

    def play_by(self, inquiry: Asking, asked: Request, settings: dict[str, Any]) -> Asking:
        """Play without running any stage: the inquiry looks at every stage that the flow reaches.

        Uses published tables in place of the stages' results. Ends at the first table that does not exist, or when the
        flow stops by itself.
        """
        cfg = profiles.load(self.config, asked.profile, {**asked.settings, **settings})
        with opened(cfg, open_store(inquiry), asked.run) as run:
            try:
                self.play(run)
            except Unmade:
                pass
            except RuntimeError as stop:  # what stopped the run: an alarm, a short pool
                inquiry.stopped = str(stop)
        return inquiry


def method(config: type[profiles.Settings]) -> Callable[[Callable[[Run[Any]], Any]], Method]:
    """Turn a function into a method: `rzero_iteration` becomes `rzero-iteration`."""
    return lambda play: Method(play.__name__.replace("_", "-"), config, play)


@contextlib.contextmanager
def opened(cfg: Any, store: Store, name: str, begins: bool = True) -> Iterator[Run[Any]]:
    """A run of a configuration; its engines and trainer end with it. A flow that trains no model has none. `begins`:
    register its models as the ones that the run starts from."""
    if not isinstance(cfg, MethodSettings):
        yield Run(cfg, store.run(name))
        return
    models = open_models(cfg)
    api = ChatFleet(cfg.api, store.root, name) if cfg.api else None
    machines = Machines.of(cfg, store.root / "logs" / name, api)
    try:
        run = Run(cfg, store.run(name), models, machines)
        if begins:
            register(run.place, policies=models)
        try:
            yield run
        except Exception:
            with contextlib.suppress(Exception):  # the next start of the run reports what is missing
                store.behind.wait()
            raise
        store.behind.wait()
    finally:
        machines.close()
