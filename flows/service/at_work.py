"""Flow runs that have not ended: which one makes a run, whether its request is the same, and how to end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.request import default_run
from flows.service import services
from flows.service.api import API
from flows.service.site import Site, store_root
from flows.service.waiting import waiting

START_S = 120.0  # how long a worker may take to start a process on a busy machine
STOPPED = "stopped by `selfplay stop`; repeat the command to resume from what is published"


def at_work(api: API, run: str) -> list[dict[str, Any]]:
    """Flow runs, including waiting ones, that make `run` in our store, the most advanced first.

    One submitted through Prefect itself does not say where it writes, and is assumed to be ours.
    """
    flows, ours = api.flow_names(), store_root()
    found = [flow_run for flow_run in api.unfinished(waiting=True) if made_by(flow_run, flows) == run]
    found = [flow_run for flow_run in found if (store_of(flow_run) or ours) == ours]
    return sorted(found, key=lambda flow_run: flow_run["state_type"] == "SCHEDULED")


def made_by(flow_run: dict[str, Any], flows: dict[str, str]) -> str:
    """The name of the run that a flow run makes. `flows`: names of flows by their id."""
    parameters = flow_run["parameters"]
    return parameters.get("run") or default_run(flows[flow_run["flow_id"]], parameters.get("profile", ""))


def asked_alike(api: API, flow_run: dict[str, Any], flow: str, parameters: dict[str, Any]) -> bool:
    """Whether a flow run of the same run has the same request; None, False and {} count as not given."""
    given, wanted = ({k: v for k, v in p.items() if v and k != "run"} for p in (flow_run["parameters"], parameters))
    return api.flow_names()[flow_run["flow_id"]] == flow and given == wanted


def stop(site: Site, run: str, say: Callable[[str], None] = print) -> None:
    """Stop the flow runs that make `run`, each with every process it started. What is published stays.

    Raises ValueError when there is none, RuntimeError when the server that knows them does not answer.
    """
    api = API.of(site)
    if not api.healthy():
        raise RuntimeError("Prefect's server, which knows the flow runs, does not answer; `selfplay up` starts it")
    services.crash_dead_runs(site, api, say)
    flows, ended = api.flow_names(), services.end_outcasts(site, api, say)
    found = at_work(api, run)
    if not found and run not in [made_by(flow_run, flows) for flow_run in ended]:
        raise ValueError(f"no flow run of {run!r} is running; `selfplay status` shows the stages that are")
    for flow_run in found:
        with waiting(f"{flow_run['name']} to end"):
            _end(site, api, flow_run["id"])
        say(f"stopped flow run {flow_run['name']}; repeat `selfplay run` to resume {run!r} from what it has published")


def _end(site: Site, api: API, flow_run_id: str) -> None:
    """End a flow run; if it is just starting, wait for its process first."""
    process, end = site.process(f"flow-{flow_run_id}"), time.monotonic() + START_S
    while api.flow_run(flow_run_id)["state_type"] == "PENDING" and process.find() is None and time.monotonic() < end:
        time.sleep(0.2)
    process.stop()
    api.set_state(flow_run_id, "CANCELLED", STOPPED)


def store_of(flow_run: dict[str, Any]) -> Path | None:
    """Where a flow run writes; None for one submitted through Prefect itself, which does not say."""
    root = ((flow_run["job_variables"] or {}).get("env") or {}).get("SELFPLAY_STORE")
    return Path(root) if root else None
