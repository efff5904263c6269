"""The process that a worker starts for a flow run: Prefect's engine with its own log file.

A worker reads its flows' output through a pipe; when it is killed, a flow would die at its next printed line.
A file outlives the worker.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from flows.service.outcast import end_when_given_up
from flows.service.prefect_import import import_prefect
from flows.service.site import USERS_TMPDIR, Site


def main() -> None:
    _restore_temporary_folder()
    site = Site(home=Path(os.environ["PREFECT_HOME"]))
    name = f"flow-{os.environ['PREFECT__FLOW_RUN_ID']}"
    pid_file = site.process(name)
    pid_file.write(os.getpid())
    site.logs.mkdir(parents=True, exist_ok=True)
    log = os.open(site.logs / f"{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    try:
        end_when_given_up(os.environ["PREFECT__FLOW_RUN_ID"])
        import_prefect()
        runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
    finally:
        pid_file.path.unlink(missing_ok=True)


def _restore_temporary_folder() -> None:
    """Use the user's temporary folder: the worker's path is long, and a socket's path is limited to 107 bytes."""
    if (users := os.environ.pop(USERS_TMPDIR, None)) is not None:
        os.environ.pop("TMPDIR", None)
        os.environ.update({"TMPDIR": users} if users else {})


if __name__ == "__main__":
    main()
