"""`@method` turns a paper's Algorithm 1, written as a function of a `Run`, into a method.

    @method(Config)
    def rzero_iteration(run: Run[Config]) -> tuple[Player, Player]:
        ...

A method is a folder, beside this file or anywhere else (`selfplay run ./my_method`), with a
`config.py` that has a `Config`, `profiles/`, `prompts/`, and a `flow.py` that has such a function.
A method is also a Prefect flow, and each of its profiles is a deployment. `selfplay run`, `rerun`
and `why`, the views and the report all work on it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from flows.plan.cluster import is_on_nodes
from flows.plan.preflight import check_machine
from flows.run import Run, check_world
from flows.runtime.machines import MachinePool, Machines, open_models, register, told_apart
from flows.runtime.record import open_run, report_orphaned
from flows.runtime.request import Request, RerunRequest, default_run
from flows.runtime.start import open_start
from flows.runtime.store_root import open_store, store_root
from flows.runtime.tracking import tracked
from flows.settings import profile as profiles
from flows.settings.profile import MethodSettings
from tasks.engines.chat import ChatFleet
from warehouse.code import follow_package
from warehouse.head import head_of
from warehouse.rerun import Enough, Inquiry, Unmade
from warehouse.store import Store

Asking = TypeVar("Asking", bound=Inquiry)
Algorithm = Callable[[Run[Any]], Any]


@dataclass(frozen=True)
class Method:
    """A flow's name, its configuration class, and the algorithm that it plays."""

    name: str
    config: type[profiles.Settings]
    play: Algorithm

    def __call__(
        self,
        profile: str = "micro",
        run: str | None = None,
        overrides: dict[str, Any] | None = None,
        corpus: str | None = None,
        rerun: RerunRequest | None = None,
        force: bool = False,
    ) -> str:
        """Play a run and return its name.

        `overrides`: settings that replace the profile's, such as `{"solver.steps": 2}`. `rerun`
        names stages to rerun. `force` lets a run continue with a different configuration from the
        one that it began with. Raises ValueError as `run` does.
        """
        name = run or default_run(self.name, profile, corpus)
        request = Request(
            flow=self.name,
            profile=profile,
            run=name,
            overrides=overrides,
            corpus=corpus,
            folder=self.folder,
        )
        self.run(request, rerun, force)
        return name

    @property
    def folder(self) -> str | None:
        """The method's folder if it is outside this project, else None."""
        if own_package(self.play):
            return str(profiles.home(self.config))
        return None

    @functools.cached_property
    def flow(self) -> Any:
        """`__call__` as a Prefect flow, made on demand, since importing Prefect takes a second."""
        from prefect import flow

        as_flow = flow(
            name=self.name,
            description=self.play.__doc__,
            flow_run_name=self._name_of_flow_run,
            persist_result=False,
        )
        return as_flow(self.__call__)

    def _name_of_flow_run(self) -> str:
        """The name of the run that the current flow run plays."""
        from prefect.runtime import flow_run

        parameters = flow_run.parameters
        return parameters.get("run") or default_run(
            self.name, parameters.get("profile", "micro"), parameters.get("corpus")
        )

    def run(
        self,
        request: Request,
        rerun: RerunRequest | None = None,
        force: bool = False,
        loads: bool = True,
        pool: MachinePool | None = None,
    ) -> None:
        """Play a run; repeating the same request resumes where it stopped.

        `loads`: whether the run may load models. `pool`: machines that it shares with other runs.
        Raises ValueError, before any model is loaded, for a wrong setting, a machine that the plan
        does not fit, a missing model or API key, stages to rerun that do not exist, or a run that
        was made with another configuration (unless `force`).
        """
        cfg = self.load(request, loads)
        sink: profiles.Sink = "none"
        if isinstance(cfg, MethodSettings):
            sink = cfg.tracking
        with (
            open_run(request, cfg, rerun, force) as store,
            tracked(sink, store, request.run, cfg.model_dump(mode="json")),
            _only_head(cfg, store),
            opened(cfg, store, request.run, pool=pool) as run,
        ):
            self.play(run)
            report_orphaned(store, request.run)

    def load(self, request: Request, loads: bool = True) -> profiles.Settings:
        """The configuration of a run.

        `loads`: whether the run may load models. Raises ValueError for a wrong setting, a machine
        that the plan does not fit, or a missing API key.
        """
        cfg = profiles.load(self.config, request.profile, request.settings)
        if isinstance(cfg, MethodSettings):
            check_world(cfg)
            check_machine(cfg, store_root(), loads)
            if cfg.api:
                cfg.api.key()
        return cfg

    def inquire(self, request: Request, settings: dict[str, Any]) -> Inquiry:
        """What a run would do now: the stages that it would reach, and why each would be
        rebuilt. `settings` override those of the request."""
        return self.play_by(Inquiry(), request, settings)

    def play_by(
        self,
        inquiry: Asking,
        request: Request,
        settings: dict[str, Any],
        kind: Callable[..., Run[Any]] = Run,
    ) -> Asking:
        """Play without running any stage: the inquiry looks at every stage that the flow reaches.

        Published tables stand in for the results of stages. The flow ends at the first table that
        does not exist, or when it stops by itself.
        """
        cfg = profiles.load(self.config, request.profile, {**request.settings, **settings})
        with opened(cfg, open_store(inquiry), request.run, kind=kind) as run:
            try:
                self.play(run)
            except Unmade:
                pass
            except RuntimeError as stop:  # what stopped the run: an alarm, a short pool
                inquiry.stopped = str(stop)
        return inquiry


def method(config: type[profiles.Settings]) -> Callable[[Algorithm], Method]:
    """Turn a function into a method: `rzero_iteration` becomes `rzero-iteration`."""

    def decorate(play: Callable[[Run[Any]], Any]) -> Method:
        if package := own_package(play):
            follow_package(package)
        return Method(play.__name__.replace("_", "-"), config, play)

    return decorate


def own_package(play: Callable[[Run[Any]], Any]) -> str | None:
    """The package of a method outside this project, such as `my_method` for `my_method.flow`; None
    for a method of this project."""
    package, _, module = play.__module__.partition(".")
    if module == "flow":
        return package
    return None


def _only_head(cfg: Any, store: Store) -> contextlib.AbstractContextManager[None]:
    """Refuse a second head machine for a store whose engines run on several machines."""
    if isinstance(cfg, MethodSettings) and is_on_nodes(cfg):
        return head_of(store)
    return contextlib.nullcontext()


@contextlib.contextmanager
def opened(
    cfg: Any,
    store: Store,
    name: str,
    begins: bool = True,
    kind: Callable[..., Run[Any]] = Run,
    pool: MachinePool | None = None,
) -> Iterator[Run[Any]]:
    """A run of a configuration; its engines and trainer end with it, unless they are a pool's.

    A flow that trains no model, such as one that prepares a corpus, has neither. `begins`: register
    its models as those that the run starts from. `kind`: the class of the run, such as a pilot's.
    """
    if not isinstance(cfg, MethodSettings):
        yield kind(cfg, store.run(name))
        return
    models = open_models(cfg)
    if cfg.models.start:
        models["start"] = open_start(cfg.models.start, models["base"], cfg, store)
    models = told_apart(models)
    api = None
    if cfg.api:
        api = ChatFleet(cfg.api, store.root, name)
    logs = store.root / "logs" / name
    if store.freshness.builds:
        logs.mkdir(parents=True, exist_ok=True)
        logs.chmod(0o700)  # engines log what they are asked, which is not for other users
    machines = (pool or Machines).of(cfg, logs, api)
    try:
        run = kind(cfg, store.run(name), models, machines)
        if begins:
            register(run.place, policies=models)
        try:
            yield run
        except Enough:
            store.behind.wait()
            raise
        except Exception:
            # Let pending writes finish, too. Their failures are not reported here: the next start
            # of the run reports what is missing.
            with contextlib.suppress(Exception):
                store.behind.wait()
            raise
        store.behind.wait()
    finally:
        if pool is None:
            machines.close()
        elif api is not None:
            api.close()
