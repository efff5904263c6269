"""Follow a flow run from the terminal: its states, its log, and what it waits for, until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx

from flows.service import services
from flows.service.api import API, ENDED
from flows.service.at_work import made_by, store_of
from flows.service.condensed import Condensed
from flows.service.site import Site
from flows.service.waiting import on_terminal, waiting
from warehouse.store import Store

POLL_S = 0.5
PATIENCE_S = 300.0
TAKEN_S = 5.0  # by then a worker with a free slot has taken a flow run, or is about to
MAX_REVIVALS = 2
LATE_S = 5.0  # log lines arrive in batches, out of order by no more than this
QUIET_S = 5.0  # without new lines after the end, the log counts as complete even if its last line was never seen
FINISHED = "Finished in state "  # begins Prefect's last line about a flow run, and about each task
RESUME = "repeat the command to resume from what is published"
TRACEBACK = "\nTraceback (most recent call last)"  # not shown: it is in the flow's own log
LEVELS = {30: "warning: ", 40: "error: ", 50: "error: "}
ROUTINE = (  # lines that only repeat the states
    "Worker '",
    "Starting flow run process",
    "Flow run '",
    "Running 1 deployment pull step",
    "Executing deployment step",
    "Deployment step '",
    "All deployment steps completed",
    "Beginning flow run",
    "View at ",
    "Process for flow run",
    f"{FINISHED}Completed()",
    "Check whether the flow run exceeded its memory",
    "Loading flow to check for on_",
)
ECHOES = (  # lines that repeat an error already logged as "Encountered exception during execution"
    "Task run failed with exception",
    f"{FINISHED}Failed(",
    "Engine execution exited with unexpected exception",
)

Say = Callable[[str], None]


def watch(site: Site, api: API, flow_run: dict[str, Any], say: Say = print) -> str:
    """Print what happens to a flow run; returns the type of its last state, such as COMPLETED.

    Raises RuntimeError when the server does not answer for minutes, or no worker lives to take the flow run.
    """
    say = Condensed(say)
    run = _Run(site, api, flow_run, say)
    with waiting(run.waits_for):
        while not run.poll():
            time.sleep(POLL_S)
    say.end()
    last = run.now
    if last["state_type"] != "COMPLETED":
        say(f"{last['name']} ended as {last['state_name'].lower()}: {_way_on(last)}")
        if (whole := site.logs / f"flow-{flow_run['id']}.log").exists():
            say(f"its whole log: {whole}")
    return last["state_type"]


def _way_on(last: dict[str, Any]) -> str:
    """The last state's message, and how to resume a run whose process died.

    >>> _way_on({"state_type": "CRASHED", "state": {"message": "Flow run process exited with status code -9."}})
    'Flow run process exited with status code -9; repeat the command to resume from what is published'
    """
    message = last["state"]["message"] or "no message"
    if last["state_type"] == "CRASHED" and RESUME not in message:
        return f"{message.rstrip('.')}; {RESUME}"
    return message


class _Run:
    """What is known of a flow run, and what has been printed."""

    def __init__(self, site: Site, api: API, flow_run: dict[str, Any], say: Say) -> None:
        self.site, self.api, self.say, self.now = site, api, say, flow_run
        self.process = site.process(f"flow-{flow_run['id']}")
        self.log, self.queue = _Log(api, flow_run["id"], say), _Queue(site, api, say)
        self.making: str | None = None
        self.told, self.answered, self.heard, self.silent = "", time.monotonic(), time.monotonic(), False

    def waits_for(self) -> str | None:
        """Completes "waiting for ..."; None while the log shows that things move."""
        if self.silent:
            return "Prefect's server to answer"
        name, state = self.now["name"], self.now["state_type"]
        if state in ENDED:
            return f"the last lines of the log of {name}"
        if state == "SCHEDULED":
            return self.queue.reason or f"the worker of the {self.now['work_pool_name']} pool to take {name}"
        if state == "PENDING":
            return f"the process of {name} to start"
        return self.making

    def poll(self) -> bool:
        """Ask the server once, print what is new, and return whether the flow run has ended."""
        try:
            if self.now["state_type"] == "SCHEDULED" or self.process.find() is None:  # it, or who holds its slot
                services.crash_dead_runs(self.site, self.api, self.say)
            self.now = self.api.flow_run(self.now["id"])
            self.queue.check(self.now)
            new = self.log.print_new()
        except httpx.TransportError as problem:  # a busy machine: the run continues whether or not the server answers
            self._no_answer(problem)
            return False
        now = time.monotonic()
        self.answered, self.silent, self.heard = now, False, now if new else self.heard
        self.making = _making(self.now) if on_terminal() else None
        if self.now["state_name"] != self.told:
            self.told, self.heard = self.now["state_name"], now
            self.say(f"{time.strftime('%H:%M:%S')} {self.now['name']} is {self.told.lower()}")
        if self.now["state_type"] not in ENDED:
            return False
        return self.log.complete or now - self.heard > QUIET_S

    def _no_answer(self, problem: httpx.TransportError) -> None:
        if not self.silent:
            self.say(f"Prefect's server does not answer ({problem}); `selfplay up` starts one that died")
            self.silent = True
        if time.monotonic() - self.answered > PATIENCE_S:
            raise RuntimeError(
                f"Prefect's server has not answered for {PATIENCE_S:.0f} s: {problem!r}. `selfplay up` starts it; "
                "the run may have continued without it: see `selfplay status`, or repeat the command"
            ) from problem


def _making(run: dict[str, Any]) -> str | None:
    """The table that a flow run is building, according to its store."""
    root = store_of(run)
    if root is None or not root.is_dir():
        return None
    return next((work["address"] for work in Store(root).working(run["parameters"].get("run"))), None)


class _Queue:
    """Why no worker takes a flow run: its pool has no free slot, or its worker died and is being restarted."""

    def __init__(self, site: Site, api: API, say: Say) -> None:
        self.site, self.api, self.say, self.due = site, api, say, time.monotonic() + TAKEN_S
        self.reason: str | None = None
        self.revivals = 0

    def check(self, run: dict[str, Any]) -> None:
        """If a flow run has waited too long, restart a worker that died, or find out who holds the slots.

        Raises RuntimeError for a worker that dies every time it starts.
        """
        if run["state_type"] != "SCHEDULED" or time.monotonic() < self.due:
            return
        pool = run["work_pool_name"]
        if self.site.process(f"worker-{pool}").find() is None:
            self._revive(pool)
        elif self.reason is None:
            self._look_for_slot(run, pool)

    def _revive(self, pool: str) -> None:
        if self.revivals == MAX_REVIVALS:
            raise RuntimeError(
                f"the worker of the {pool} pool ends whenever it is started; {self.site.log_tail(f'worker-{pool}')}"
            )
        self.revivals += 1
        self.say(f"the worker of the {pool} pool has died (log: {self.site.logs / f'worker-{pool}.log'})")
        services.revive_worker(self.site, pool, self.say)
        self.due = time.monotonic() + TAKEN_S

    def _look_for_slot(self, run: dict[str, Any], pool: str) -> None:
        flows = self.api.flow_names()
        others = [other for other in self.api.unfinished() if other["work_pool_name"] == pool]
        if len(others) < services.POOLS[pool]:
            return
        which = ", ".join(f"{other['name']} on run {made_by(other, flows)!r}" for other in others)
        self.reason = f"a slot of the {pool} pool, {len(others)} of {services.POOLS[pool]} running: {which}"
        self.say(f"{run['name']} waits for {self.reason}; `selfplay stop RUN` ends one")


class _Log:
    """The lines of a flow run's log that were not printed yet; `complete` once its last one was."""

    def __init__(self, api: API, flow_run_id: str, say: Say) -> None:
        self.api, self.flow_run_id, self.say, self.complete = api, flow_run_id, say, False
        self.seen: set[str] = set()
        self.latest = datetime.fromisoformat("2000-01-01T00:00:00+00:00")

    def print_new(self) -> int:
        after = (self.latest - timedelta(seconds=LATE_S)).isoformat()
        lines = [line for line in self.api.logs(self.flow_run_id, after) if line["id"] not in self.seen]
        for line in lines:
            at = datetime.fromisoformat(line["timestamp"])
            self.latest = max(self.latest, at)
            self.seen.add(line["id"])
            self.complete |= line["message"].startswith(FINISHED) and line["task_run_id"] is None
            if shown := log_line(at.astimezone(), line["level"], line["message"]):
                self.say(shown)
        return len(lines)


def log_line(at: datetime, level: int, message: str) -> str | None:
    """A line of a flow's log for the terminal; None for Prefect's routine messages.

    >>> failed = "Encountered exception during execution: OSError(28)\\nTraceback (most recent call last):\\n  ..."
    >>> log_line(datetime(2026, 1, 2, 3, 4, 5), 40, failed)
    '03:04:05 error: Encountered exception during execution: OSError(28)'
    """
    if TRACEBACK in message:  # the errors that caused it have lines of their own before it
        message = message.partition("\n")[0]
    if message.startswith(ECHOES) or (level not in LEVELS and message.startswith(ROUTINE)):
        return None
    return f"{at:%H:%M:%S} {LEVELS.get(level, '')}{message}"
