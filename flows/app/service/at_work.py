"""Flow runs that have not ended: find the one that makes a run, and end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.app.service import services
from flows.app.service.api import API
from flows.app.service.site import Site
from flows.app.service.waiting import waiting
from flows.runtime.request import default_run
from flows.runtime.store_root import store_root

START_S = 120.0  # how long a worker may take to start a process on a busy machine
STOPPED = "stopped by `selfplay stop`; repeat the command to resume from what is published"


def at_work(api: API, run: str) -> list[dict[str, Any]]:
    """Unfinished flow runs that make `run` in our store; those that still wait to start come last.

    A flow run submitted through Prefect itself does not name its store and is assumed to use ours.
    """
    flows = api.flow_names()
    ours = store_root()
    flow_runs = [
        flow_run
        for flow_run in api.unfinished(waiting=True)
        if run_of(flow_run, flows) == run and (store_of(flow_run) or ours) == ours
    ]
    return sorted(flow_runs, key=lambda flow_run: flow_run["state_type"] == "SCHEDULED")


def run_of(flow_run: dict[str, Any], flows: dict[str, str]) -> str:
    """The name of the run that a flow run makes. `flows`: flow names by id."""
    parameters = flow_run["parameters"]
    return parameters.get("run") or default_run(
        flows[flow_run["flow_id"]], parameters.get("profile", ""), parameters.get("corpus")
    )


def is_same_request(
    api: API, flow_run: dict[str, Any], flow: str, parameters: dict[str, Any]
) -> bool:
    """Whether a flow run has this flow and these parameters.

    Ignores the name of the run and parameters that are None, False or empty.
    """
    if api.flow_names()[flow_run["flow_id"]] != flow:
        return False
    return _set_parameters(flow_run["parameters"]) == _set_parameters(parameters)


def _set_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters besides the run's name, without None, False and {}."""
    return {name: value for name, value in parameters.items() if value and name != "run"}


def stop(site: Site, run: str, say: Callable[[str], None] = print) -> None:
    """Stop the flow runs that make `run`, with every process that they started.

    Published tables are kept. Raises ValueError if no flow run makes `run`, and RuntimeError if the
    server does not answer.
    """
    api = API.of(site)
    if not api.healthy():
        raise RuntimeError(
            "Prefect's server, which knows the flow runs, does not answer; `selfplay up` starts it"
        )
    services.crash_dead_runs(site, api, say)
    flows = api.flow_names()
    ended = services.end_abandoned(site, api, say)
    flow_runs = at_work(api, run)
    if not flow_runs and run not in [run_of(flow_run, flows) for flow_run in ended]:
        raise ValueError(
            f"no flow run of {run!r} is running; `selfplay status` shows the stages that are"
        )
    for flow_run in flow_runs:
        with waiting(f"{flow_run['name']} to end"):
            _end(site, api, flow_run["id"])
        say(
            f"stopped flow run {flow_run['name']}; repeat `selfplay run` to resume {run!r} from"
            " what it has published"
        )


def _end(site: Site, api: API, flow_run_id: str) -> None:
    """End a flow run; if it is just starting, wait for its process first."""
    process = site.process(f"flow-{flow_run_id}")
    end = time.monotonic() + START_S
    while (
        api.flow_run(flow_run_id)["state_type"] == "PENDING"
        and process.find() is None
        and time.monotonic() < end
    ):
        time.sleep(0.2)
    process.stop()
    api.set_state(flow_run_id, "CANCELLED", STOPPED)


def store_of(flow_run: dict[str, Any]) -> Path | None:
    """The store of a flow run; None for one submitted through Prefect, which does not name it."""
    root = services.environment_of(flow_run).get("SELFPLAY_STORE")
    if root:
        return Path(root)
    return None
