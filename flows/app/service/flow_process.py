"""The process that a worker starts for a flow run: Prefect's engine with its own log file.

A worker reads the output of its flows through a pipe. If the worker were killed, a flow would die
at the next line that it prints; a log file outlives the worker.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from flows.app.service.abandoned import end_once_abandoned
from flows.app.service.deployments import outside_folders
from flows.app.service.site import USERS_TMPDIR, Site


def main() -> None:
    """Play the flow run that the environment names; keep its pid and its log in files of the
    site."""
    _restore_temporary_folder()
    site = Site(home=Path(os.environ["PREFECT_HOME"]))
    flow_run_id = os.environ["PREFECT__FLOW_RUN_ID"]
    pid_file = site.process(f"flow-{flow_run_id}")
    pid_file.write(os.getpid())
    site.logs.mkdir(parents=True, exist_ok=True)
    log = os.open(
        site.logs / f"flow-{flow_run_id}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644
    )
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    # methods outside the checkout are imported from their parent folders, after everything else
    sys.path += [str(folder.parent) for folder in outside_folders(site)]
    try:
        end_once_abandoned(flow_run_id)
        runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
    finally:
        pid_file.path.unlink(missing_ok=True)


def _restore_temporary_folder() -> None:
    """Use the user's temporary folder instead of the worker's.

    The worker's path is long, and a socket's path is limited to 107 bytes.
    """
    users_folder = os.environ.pop(USERS_TMPDIR, None)
    if users_folder is None:
        return
    os.environ.pop("TMPDIR", None)
    if users_folder:
        os.environ["TMPDIR"] = users_folder


if __name__ == "__main__":
    main()
