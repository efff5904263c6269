"""End a flow that the server marked as crashed while the flow, or its machine, was suspended.

By the time it wakes up, another flow run may be working on its run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import httpx
import psutil

from flows.app.service.api import API

POLL_S = 5.0
GRACE_S = 10.0
OVER = ("CRASHED", "CANCELLED")


def end_once_abandoned(flow_run_id: str) -> None:
    """End this process once its flow run is marked Crashed or Cancelled.

    The process must be a client of the site (`Site.activate`). Returns at once: a thread watches.
    """
    api = API.at(os.environ["PREFECT_API_URL"], os.environ["PREFECT_API_AUTH_STRING"])
    threading.Thread(target=_watch, args=(api, flow_run_id), daemon=True).start()


def _watch(api: API, flow_run_id: str) -> None:
    while not _is_over(api, flow_run_id):
        time.sleep(POLL_S)
    print(
        "the server has given up this flow run, which ends: repeat the command to resume it",
        flush=True,
    )
    for process in [*psutil.Process().children(recursive=True), psutil.Process()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def _is_over(api: API, flow_run_id: str) -> bool:
    try:
        return api.flow_run(flow_run_id)["state_type"] in OVER
    except (httpx.TransportError, RuntimeError):
        # the flow continues whether or not the server answers
        return False
