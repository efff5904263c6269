"""Follow a flow run from the terminal: its states and its log, until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx

from flows.service import services
from flows.service.api import API, ENDED
from flows.service.at_work import made_by
from flows.service.site import Site

POLL_S = 1.0
PATIENCE_S = 300.0
TAKEN_S = 5.0  # a worker with a slot left has taken a flow run by then, or does soon
LATE_S = 5.0  # log lines arrive in batches, out of order by no more than this
QUIET_POLLS = 3  # without a new line after the end: then the log is complete, if the process was never seen
STAGE_DONE = "Finished in state Completed()"
TRACEBACK = "\nTraceback (most recent call last)"  # stands in the flow's own log
LEVELS = {30: "warning: ", 40: "error: ", 50: "error: "}

Say = Callable[[str], None]


def watch(site: Site, api: API, flow_run: dict[str, Any], say: Say = print) -> str:
    """Print what happens to a flow run; returns the type of its last state, such as COMPLETED."""
    log, queue, process = _Log(api, flow_run["id"], say), _Queue(api, say), None
    run, state, quiet, answered, silent = flow_run, "", 0, time.monotonic(), False
    while True:
        try:
            services.crash_dead_runs(site, api, say)
            process = process or site.process(f"flow-{flow_run['id']}").find()
            gone = process is not None and not process.is_running()  # with its last lines sent
            run = api.flow_run(flow_run["id"])
            queue.explain(run)
            new = log.print_new()
        except httpx.TransportError as problem:  # a busy machine: the run goes on whether or not the server answers
            if not silent:
                say(f"Prefect's server does not answer ({problem}); `selfplay up` starts one that died")
                silent = True
            if time.monotonic() - answered > PATIENCE_S:
                raise RuntimeError(
                    f"Prefect's server has not answered for {PATIENCE_S:.0f} s: {problem!r}. `selfplay up` starts it; "
                    "the run may have gone on without it: `selfplay status`, or run it again to go on"
                ) from problem
            time.sleep(POLL_S)
            continue
        answered, silent = time.monotonic(), False
        if run["state_name"] != state:
            state = run["state_name"]
            say(f"{time.strftime('%H:%M:%S')} {run['name']} is {state.lower()}")
        if run["state_type"] in ENDED:
            quiet = 0 if new else quiet + 1
            if gone or quiet == QUIET_POLLS:
                break
        time.sleep(POLL_S)
    if run["state_type"] != "COMPLETED":
        say(f"{run['name']} ended as {state.lower()}: {run['state']['message'] or 'no message'}")
        if (whole := site.logs / f"flow-{flow_run['id']}.log").exists():
            say(f"its whole log: {whole}")
    return run["state_type"]


class _Queue:
    """Says once what a flow run waits for that no worker takes because its pool has no slot left."""

    def __init__(self, api: API, say: Say) -> None:
        self.api, self.say, self.due, self.told = api, say, time.monotonic() + TAKEN_S, False

    def explain(self, run: dict[str, Any]) -> None:
        if self.told or run["state_type"] != "SCHEDULED" or time.monotonic() < self.due:
            return
        pool, flows = run["work_pool_name"], self.api.flow_names()
        others = [other for other in self.api.unfinished() if other["work_pool_name"] == pool]
        if len(others) >= services.POOLS[pool]:
            which = ", ".join(f"{other['name']} on run {made_by(other, flows)!r}" for other in others)
            self.say(
                f"{run['name']} waits for a slot of the {pool} pool, {len(others)} of {services.POOLS[pool]} at work: "
                f"{which}; `selfplay stop RUN` ends one"
            )
            self.told = True


class _Log:
    """The lines of a flow run's log that were not printed yet."""

    def __init__(self, api: API, flow_run_id: str, say: Say) -> None:
        self.api, self.flow_run_id, self.say = api, flow_run_id, say
        self.seen: set[str] = set()
        self.latest = datetime.fromisoformat("2000-01-01T00:00:00+00:00")

    def print_new(self) -> int:
        after = (self.latest - timedelta(seconds=LATE_S)).isoformat()
        lines = [line for line in self.api.logs(self.flow_run_id, after) if line["id"] not in self.seen]
        for line in lines:
            at = datetime.fromisoformat(line["timestamp"])
            self.latest = max(self.latest, at)
            self.seen.add(line["id"])
            if line["message"] != STAGE_DONE:  # the stage itself says more
                message = line["message"].partition(TRACEBACK)[0]
                self.say(f"{at.astimezone():%H:%M:%S} {LEVELS.get(line['level'], '')}{message}")
        return len(lines)
