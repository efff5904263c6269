"""Follow a flow run from the terminal until it ends: states, log, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import httpx

from flows.app.service import services
from flows.app.service.api import API, ENDED
from flows.app.service.at_work import run_of, store_of
from flows.app.service.short_log import ShortLog
from flows.app.service.site import Site
from flows.app.service.waiting import on_terminal, waiting
from warehouse.store import Store

POLL_S = 0.5
PATIENCE_S = 300.0
TAKEN_S = 5.0  # within this time, a worker with a free slot has taken a flow run or is about to
MAX_REVIVALS = 2
LATE_S = 5.0  # log lines arrive in batches, out of order by no more than this
# after the flow run ends and this long without news, the log counts as complete even if its last
# line was never seen
QUIET_S = 5.0
FINISHED = "Finished in state "  # start of Prefect's last line about a flow run or a task
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


def watch(
    site: Site,
    api: API,
    flow_run: dict[str, Any],
    say: Say = print,
    waits: Callable[[Callable[[], str | None]], AbstractContextManager[None]] = waiting,
) -> str:
    """Print what happens to a flow run; return the type of its last state, such as COMPLETED.

    `waits` shows what the command waits for while its block runs.

    Raises RuntimeError if the server does not answer for minutes, or if the worker that should take
    the flow run keeps dying.
    """
    short = ShortLog(say)
    run = _Run(site, api, flow_run, short)
    with waits(run.waits_for):
        while not run.poll():
            time.sleep(POLL_S)
    short.end()
    last = run.now
    if last["state_type"] != "COMPLETED":
        message = _last_message(last["state_type"], last["state"]["message"])
        say(f"{last['name']} ended as {last['state_name'].lower()}: {message}")
        if (whole := site.logs / f"flow-{flow_run['id']}.log").exists():
            say(f"its whole log: {whole}")
    return last["state_type"]


def _last_message(state_type: str, message: str | None) -> str:
    """The last state's message, and how to resume a run whose process died.

    >>> _last_message("CRASHED", "The process died.")
    'The process died; repeat the command to resume from what is published'
    """
    message = message or "no message"
    if state_type == "CRASHED" and RESUME not in message:
        return f"{message.rstrip('.')}; {RESUME}"
    return message


class _Run:
    """The known state of a flow run, and what has been printed about it."""

    def __init__(self, site: Site, api: API, flow_run: dict[str, Any], say: Say) -> None:
        self.site = site
        self.api = api
        self.say = say
        self.now = flow_run
        self.process = site.process(f"flow-{flow_run['id']}")
        self.log = _Log(api, flow_run["id"], say)
        self.queue = _Queue(site, api, say)
        self.table_in_work: str | None = None
        self.shown_state = ""
        self.silent = False  # the server did not answer the last time
        self.answered_at = time.monotonic()
        self.changed_at = time.monotonic()  # when the last log line or new state arrived

    def waits_for(self) -> str | None:
        """Text that completes "waiting for ..."; None if nothing is known to be waited for."""
        if self.silent:
            return "Prefect's server to answer"
        name = self.now["name"]
        state = self.now["state_type"]
        if state in ENDED:
            return f"the last lines of the log of {name}"
        if state == "SCHEDULED":
            return (
                self.queue.reason
                or f"the worker of the {self.now['work_pool_name']} pool to take {name}"
            )
        if state == "PENDING":
            return f"the process of {name} to start"
        return self.table_in_work

    def poll(self) -> bool:
        """Ask the server once, print what is new, and return whether the flow run has ended."""
        try:
            # the process of this flow run, or of the one that holds its slot, may be gone
            if self.now["state_type"] == "SCHEDULED" or self.process.find() is None:
                services.crash_dead_runs(self.site, self.api, self.say)
            self.now = self.api.flow_run(self.now["id"])
            self.queue.check(self.now)
            num_new = self.log.print_new()
        except httpx.TransportError as problem:
            # a busy machine: the run continues whether or not the server answers
            self._no_answer(problem)
            return False
        now = time.monotonic()
        self.answered_at = now
        self.silent = False
        if num_new:
            self.changed_at = now
        if on_terminal():
            self.table_in_work = _table_in_work(self.now)
        if self.now["state_name"] != self.shown_state:
            self.shown_state = self.now["state_name"]
            self.changed_at = now
            at = time.strftime("%H:%M:%S")
            self.say(f"{at} {self.now['name']} is {self.shown_state.lower()}")
        if self.now["state_type"] not in ENDED:
            return False
        return self.log.complete or now - self.changed_at > QUIET_S

    def _no_answer(self, problem: httpx.TransportError) -> None:
        if not self.silent:
            self.say(
                f"Prefect's server does not answer ({problem}); `selfplay up` starts one that died"
            )
            self.silent = True
        if time.monotonic() - self.answered_at > PATIENCE_S:
            raise RuntimeError(
                f"Prefect's server has not answered for {PATIENCE_S:.0f} s: {problem!r}. `selfplay"
                " up` starts it; the run may have continued without it: see `selfplay status`, or"
                " repeat the command"
            ) from problem


def _table_in_work(run: dict[str, Any]) -> str | None:
    """The table that a flow run is building, according to its store."""
    root = store_of(run)
    if root is None or not root.is_dir():
        return None
    in_work = Store(root).working(run["parameters"].get("run"))
    return next((work["address"] for work in in_work), None)


class _Queue:
    """Why no worker takes a flow run.

    Its pool has no free slot, or its worker died and is being restarted.
    """

    def __init__(self, site: Site, api: API, say: Say) -> None:
        self.site = site
        self.api = api
        self.say = say
        self.due = time.monotonic() + TAKEN_S
        self.reason: str | None = None
        self.revivals = 0

    def check(self, run: dict[str, Any]) -> None:
        """If a flow run has waited too long, restart its worker or find out what holds the slots.

        Raises RuntimeError if the worker dies every time it starts.
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
                f"the worker of the {pool} pool ends whenever it is started;"
                f" {self.site.log_tail(f'worker-{pool}')}"
            )
        self.revivals += 1
        self.say(
            f"the worker of the {pool} pool has died (log: {self.site.logs / f'worker-{pool}.log'})"
        )
        services.revive_worker(self.site, pool, self.say)
        self.due = time.monotonic() + TAKEN_S

    def _look_for_slot(self, run: dict[str, Any], pool: str) -> None:
        flows = self.api.flow_names()
        others = [other for other in self.api.unfinished() if other["work_pool_name"] == pool]
        if len(others) < services.POOLS[pool]:
            return
        which = ", ".join(f"{other['name']} on run {run_of(other, flows)!r}" for other in others)
        self.reason = (
            f"a slot of the {pool} pool, {len(others)} of {services.POOLS[pool]} running: {which}"
        )
        self.say(f"{run['name']} waits for {self.reason}; `selfplay stop RUN` ends one")


class _Log:
    """Prints new lines of a flow run's log; `complete` once the last line has been printed."""

    def __init__(self, api: API, flow_run_id: str, say: Say) -> None:
        self.api = api
        self.flow_run_id = flow_run_id
        self.say = say
        self.complete = False
        self.seen: set[str] = set()
        self.latest = datetime.fromisoformat("2000-01-01T00:00:00+00:00")

    def print_new(self) -> int:
        after = (self.latest - timedelta(seconds=LATE_S)).isoformat()
        lines = [
            line for line in self.api.logs(self.flow_run_id, after) if line["id"] not in self.seen
        ]
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

    >>> failed = "OSError(28)\\nTraceback (most recent call last):\\n  ..."
    >>> log_line(datetime(2026, 1, 2, 3, 4, 5), 40, failed)
    '03:04:05 error: OSError(28)'
    """
    if TRACEBACK in message:  # the errors that caused it have lines of their own before it
        message = message.partition("\n")[0]
    if message.startswith(ECHOES) or (level not in LEVELS and message.startswith(ROUTINE)):
        return None
    return f"{at:%H:%M:%S} {LEVELS.get(level, '')}{message}"
