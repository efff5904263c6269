"""Start a flow run, in a worker or in this process, or follow the one that is running."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from flows.app.command.parameters import (
    check_settings,
    environment,
    find_deployment,
    make_request,
    method_of,
)
from flows.app.command.quick import why_in_process
from flows.app.command.worked_examples import show_examples_of
from flows.app.service.site import Site
from flows.app.service.waiting import say
from flows.runtime.store_root import in_workspace, open_store, store_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.app.service.api import API
    from flows.run import Run
    from flows.runtime.request import Request
    from flows.settings.profile import Settings
    from warehouse.rerun import Inquiry
    from warehouse.table import Table
Asking = TypeVar("Asking", bound="Inquiry")


def run_flow(site: Site, flow: str, parameters: dict[str, Any], in_process: bool = False) -> bool:
    """Check everything that can be checked now, then run. Return whether the flow completed.

    If a flow run with the same parameters has not ended, follows that one instead of starting a
    second. A flow run that takes only a moment runs in this process; with `in_process`, any does.

    Raises ValueError if a check fails, for example for a profile that needs a GPU on a machine
    without one.
    """
    from flows.app.service import services
    from flows.plan.preflight import check_packages

    deployment = find_deployment(flow, parameters["profile"], site)
    cfg, request = _check(deployment, flow, parameters)
    reason = why_in_process(request.run, parameters.get("rerun"), lambda: inquire(request))
    in_process = in_process or reason is not None
    pool = deployment["work_pool"]["name"]
    if not (
        in_process or pool in services.default_pools() or site.process(f"worker-{pool}").find()
    ):
        raise ValueError(
            f"profile {request.profile} needs a GPU and none was found; `selfplay up --gpu` starts"
            " the worker anyway"
        )
    if reason is None:
        check_packages(cfg)
    with in_workspace():
        show_examples_of(cfg)
    api = services.up(site, say=say)
    if in_process:
        _run_in_process(site, api, request, parameters, reason)
        return True
    return _run_by_worker(site, api, flow, parameters)


def _check(
    deployment: dict[str, Any], flow: str, parameters: dict[str, Any]
) -> tuple[Settings, Request]:
    """The configuration and the request. Raises ValueError if it cannot run."""
    from flows.plan.preflight import check_machine
    from flows.runtime.record import check_request, make_rerun
    from flows.runtime.request import RerunRequest
    from flows.settings.profile import MethodSettings

    cfg = check_settings(deployment, parameters)
    request = make_request(deployment, flow, parameters)
    store = open_store()
    check_request(store, request, cfg, parameters.get("force", False))
    if rerun := parameters.get("rerun"):
        make_rerun(store, request.run, RerunRequest.model_validate(rerun))
    if isinstance(cfg, MethodSettings):
        check_machine(cfg, store_root())
    return cfg, request


def inquire(request: Request, settings: dict[str, Any] | None = None) -> Inquiry:
    """What a flow run would do now: the stages that it would reach, and why each would be rebuilt.

    Runs no stage. `settings` override those of the request.
    """
    from warehouse.rerun import Inquiry

    return play_by(Inquiry(), request, settings or {})


def play_by(
    inquiry: Asking,
    request: Request,
    settings: dict[str, Any],
    kind: Callable[..., Run[Any]] | None = None,
) -> Asking:
    """Play the flow silently with `inquiry`, and return it. `kind`: the class of the run."""
    from flows.run import Run as PlainRun

    log = logging.getLogger("selfplay")
    log.disabled = True  # log lines would report stages that do not run
    try:
        with in_workspace():  # paths in profiles are relative to it
            return method_of(request).play_by(inquiry, request, settings, kind or PlainRun)
    finally:
        log.disabled = False


def _run_by_worker(site: Site, api: API, flow: str, parameters: dict[str, Any]) -> bool:
    from flows.app.service.at_work import at_work, is_same_request
    from flows.app.service.live import followed
    from flows.app.service.watch import watch

    run = parameters["run"]
    begun = at_work(api, run)
    if begun:
        flow_run = begun[0]
        if not is_same_request(api, flow_run, flow, parameters):
            raise _busy(api, flow_run, flow, parameters)
        state = "is already running,"
    else:
        flow_run = api.submit(f"{flow}/{parameters['profile']}", parameters, environment())
        state = "as"
    say(f"run {run!r} {state} flow run {flow_run['name']}: {site.page(flow_run)}")
    try:
        with followed(open_store(), run) as follower:
            state_type = watch(site, api, flow_run, follower, follower.waiting)
        return state_type == "COMPLETED"
    except KeyboardInterrupt:
        say(f"\ndetached: repeat the command to reattach; `selfplay stop {run}` stops the run")
        sys.exit(130)


def _run_in_process(
    site: Site, api: API, request: Request, parameters: dict[str, Any], reason: str | None
) -> None:
    """Run the flow in this process and record it on the server; its exceptions propagate.

    `reason`: why it takes only a moment; None if it may take longer and load models.
    """
    from flows.app.service.at_work import at_work
    from flows.app.service.in_process import record_stages, recorded
    from flows.app.service.live import followed
    from flows.app.service.process import identity
    from flows.app.service.services import IN_PROCESS
    from flows.runtime.request import RerunRequest

    if begun := at_work(api, request.run):
        raise _busy(api, begun[0], request.flow, parameters)
    deployment = f"{request.flow}/{request.profile}"
    method = method_of(request)
    rerun = parameters.get("rerun")
    rerun_request = RerunRequest.model_validate(rerun) if rerun else None
    force = parameters.get("force", False)
    shows = contextlib.nullcontext(say) if reason else followed(open_store(), request.run)
    # a worker would also run it in the workspace
    with in_workspace(), shows as shown:
        # submitted last: an earlier failure leaves no flow run behind
        variables = {**environment(), IN_PROCESS: identity(os.getpid())}
        flow_run = api.submit(deployment, parameters, variables, state="PENDING")
        shown(
            f"run {request.run!r} as flow run {flow_run['name']}, {reason or 'in this process'}:"
            f" {site.page(flow_run)}"
        )
        with recorded(site, api, flow_run, shown):
            began = time.time()
            try:
                method.run(request, rerun_request, force, loads=reason is None)
            finally:
                record_stages(api, flow_run, _made_since(began, request.run), shown)


def _made_since(began: float, run: str) -> list[Table]:
    """The run's tables that were begun after `began`, in seconds since 1970."""
    return [table for table in open_store().tables(run) if table.recipe["started_at"] >= began]


def _busy(api: API, flow_run: dict[str, Any], flow: str, parameters: dict[str, Any]) -> ValueError:
    from flows.app.service.at_work import is_same_request

    run = parameters["run"]
    how = "with other parameters than these"
    if is_same_request(api, flow_run, flow, parameters):
        how = "already"
    return ValueError(
        f"flow run {flow_run['name']} is running {run!r} {how}; `selfplay stop {run}` stops it"
    )
