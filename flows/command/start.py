"""Start a flow run or follow the running one, in a worker, or in this process if it takes only a moment."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from flows.command.launch import check_settings, environment, find_deployment, find_method
from flows.command.quick import why_here
from flows.service.site import SOURCE, Site, open_store, store_root
from flows.service.waiting import say

if TYPE_CHECKING:
    from flows.request import Request
    from flows.service.api import API
    from warehouse.rerun import Inquiry
Asking = TypeVar("Asking", bound="Inquiry")


def run_flow(site: Site, flow: str, parameters: dict[str, Any], here: bool = False) -> bool:
    """Check everything that can be known now, then run. Returns whether the flow completed.

    If a flow run with the same parameters has not ended, it is followed instead of starting a second one. A flow run
    that takes only a moment runs in this process.
    """
    from flows.service import services

    deployment = find_deployment(flow, parameters["profile"], site)
    asked = _check(deployment, flow, parameters)
    moment = why_here(asked.run, parameters.get("rerun"), lambda: inquire(asked))
    pool = deployment["work_pool"]["name"]
    if not (here or moment or pool in services.default_pools() or site.process(f"worker-{pool}").find()):
        raise ValueError(
            f"profile {asked.profile} needs a GPU and none was found; `selfplay up --gpu` starts the worker anyway"
        )
    api = services.up(site, say=say)
    if here or moment:
        return _run_here(site, api, asked, parameters, moment)
    return _run_by_worker(site, api, flow, parameters)


def _check(deployment: dict[str, Any], flow: str, parameters: dict[str, Any]) -> Request:
    """Check the request and return it. Raises ValueError if it cannot run."""
    from flows.plan.preflight import check_machine
    from flows.profile import MethodSettings
    from flows.record import check_request, make_rerun
    from flows.request import Request, RerunRequest

    cfg = check_settings(deployment, parameters)
    named = {key: parameters.get(key) for key in ("profile", "run", "overrides", "corpus")}
    asked = Request.model_validate({"flow": flow, **named})
    store = open_store()
    check_request(store, asked, cfg, parameters.get("force", False))
    if rerun := parameters.get("rerun"):
        make_rerun(store, asked.run, RerunRequest.model_validate(rerun))
    if isinstance(cfg, MethodSettings):
        check_machine(cfg, store_root())
    return asked


def inquire(asked: Request, settings: dict[str, Any] | None = None) -> Inquiry:
    """What a flow run would do now, with `settings` on top of those asked for."""
    from warehouse.rerun import Inquiry

    return play_by(Inquiry(), asked, settings or {})


def play_by(inquiry: Asking, asked: Request, settings: dict[str, Any]) -> Asking:
    """Let `inquiry` play the flow, in silence; returns it."""
    log = logging.getLogger("selfplay")
    log.disabled = True  # its lines would report stages that do not run
    try:
        with contextlib.chdir(SOURCE):  # paths in profiles are relative to it
            return find_method(asked.flow).play_by(inquiry, asked, settings)
    finally:
        log.disabled = False


def _run_by_worker(site: Site, api: API, flow: str, parameters: dict[str, Any]) -> bool:
    from flows.service.at_work import asked_alike, at_work
    from flows.service.watch import watch

    run, begun = parameters["run"], at_work(api, parameters["run"])
    if begun and not asked_alike(api, begun[0], flow, parameters):
        raise _busy(begun[0], run)
    deployment = f"{flow}/{parameters['profile']}"
    flow_run = begun[0] if begun else api.submit(deployment, parameters, environment())
    say(f"run {run!r} {'is already running,' if begun else 'as'} flow run {flow_run['name']}: {site.page(flow_run)}")
    try:
        return watch(site, api, flow_run, say) == "COMPLETED"
    except KeyboardInterrupt:
        say(f"\ndetached: repeat the command to reattach; `selfplay stop {run}` stops the run")
        sys.exit(130)


def _run_here(site: Site, api: API, asked: Request, parameters: dict[str, Any], moment: str | None) -> bool:
    """Run the flow in this process, recorded by the server; its exception propagates."""
    from flows.request import RerunRequest
    from flows.service.at_work import at_work
    from flows.service.brief import record_stages, recorded
    from flows.service.here import run_here

    run = asked.run
    if begun := at_work(api, run):
        raise _busy(begun[0], run)
    named = f"{asked.flow}/{asked.profile}"
    flow_run = api.submit(named, parameters, environment(), state="PENDING")
    say(f"run {run!r} as flow run {flow_run['name']}, {moment or 'in this process'}: {site.page(flow_run)}")
    method, rerun = find_method(asked.flow), parameters.get("rerun")
    with contextlib.chdir(SOURCE):  # where a worker would run it
        if moment is None:
            run_here(site, method, flow_run, parameters, say)
            return True
        with recorded(site, api, flow_run, say):
            began = time.time()
            again = RerunRequest.model_validate(rerun) if rerun else None
            method.run(asked, again, parameters.get("force", False), loads=False)
            if rerun:
                rebuilt = [table for table in open_store().tables(run) if table.recipe["started_at"] >= began]
                record_stages(api, flow_run, rebuilt)
    return True


def _busy(flow_run: dict[str, Any], run: str) -> ValueError:
    return ValueError(
        f"flow run {flow_run['name']} is running {run!r} with other parameters than these; "
        f"`selfplay stop {run}` stops it"
    )
