"""Server, work pools, workers and deployments of one workspace; `up` starts whatever is missing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from flows.app.service.api import API
from flows.app.service.deployments import (
    as_prefect_stores_it,
    declared,
    own_file,
    parameters_of_methods,
)
from flows.app.service.process import Process, running_process
from flows.app.service.site import Site
from flows.app.service.waiting import waiting
from flows.runtime.store_root import SOURCE

POOLS = {"cpu": 2, "gpu": 1}  # concurrent flow runs of each work pool
SILENCE_S = 120.0  # four heartbeats
LAST_LOOK_S = 0.5  # even a worker that is about to fail sends a first heartbeat
START_S = 300.0  # the first start creates the database, which takes long on a busy machine
DIED = "its process ended without a message; repeat the command to resume from what is published"
METHOD = SOURCE / "flows" / "method.py"
IN_PROCESS = "SELFPLAY_IN_PROCESS"  # environment variable of a flow run: the process that runs it
DEPLOYED = "deployed"  # file in a site's home: what was last deployed
NVIDIA = Path("/dev/nvidia0")
AMD = Path("/dev/kfd")
Say = Callable[[str], None]


def up(site: Site, pools: tuple[str, ...] | None = None, say: Say = print) -> API:
    """Start everything that is not running, and wait until all of it answers.

    Fast and silent if nothing is missing. `pools`: the pools that get a worker; None means all, but
    without the gpu pool on a machine without a GPU. Raises RuntimeError, which says what to do, if
    a process does not start.
    """
    _check_port_choice(site)
    site.prepare()
    with _alone(site):
        api = _server(site, say)
        crash_dead_runs(site, api, say)
        end_abandoned(site, api, say)
        api.expect_heartbeats(SILENCE_S)
        for pool, limit in POOLS.items():
            api.set_pool(pool, limit, _job_template(site))
        started = time.time()
        workers = [_worker(site, pool, say) for pool in pools or default_pools()]
        deploy(site, api, say)
        _wait_for_workers(site, api, [worker for worker in workers if worker], started)
    return api


def down(site: Site, say: Say = print) -> None:
    """End the workers, flows and server of this site, each by its pid.

    Interrupted flow runs are marked Crashed.
    """
    with _alone(site):
        for process in [*site.processes("worker-"), *site.processes("flow-")]:
            with waiting(f"{process.name} to end"):
                ended = process.stop()
            if ended:
                say(f"ended {process.name}")
        api = API.of(site)
        if api.healthy():
            try:
                crash_dead_runs(site, api, say)
            except RuntimeError as problem:  # end the server anyway
                say(f"flow runs cut short were not marked: {problem}")
        with waiting("the server to end"):
            ended = site.process("server").stop()
        if ended:
            say("ended server")


def status(site: Site) -> list[dict[str, Any]]:
    """One row per process of a site: its name, its pid and start time (None if it is not running),
    and its log file."""
    names = [
        "server",
        *(f"worker-{pool}" for pool in POOLS),
        *(p.name for p in site.processes("flow-")),
    ]
    return [_status_row(site, name) for name in names]


def default_pools() -> tuple[str, ...]:
    """The pools that get a worker on this machine: the gpu pool only if it has an NVIDIA or AMD
    GPU."""
    return tuple(pool for pool in POOLS if pool != "gpu" or NVIDIA.exists() or AMD.exists())


def deploy(site: Site, api: API, say: Say = print) -> None:
    """Deploy the profiles whose declarations have changed since the last deployment.

    A change to a flow's code needs no deployment: every flow run imports the current code.

    Raises RuntimeError if Prefect refuses a declaration.
    """
    unreadable: dict[Path, ValueError] = {}
    deployments = declared(site, unreadable=unreadable)
    for problem in unreadable.values():
        say(f"not deployed: {problem}")
    changed = to_deploy(site, deployments, num_there=len(api.deployments()))
    if not changed:
        return
    say(f"deploying {len(changed)} of {len(deployments)} profiles")
    if own_file(site).exists():
        _deploy_own_file(site, api, len(deployments))
    else:
        parameters = parameters_of_methods()
        with waiting("Prefect's server"):
            for deployment in changed:
                flow, values = as_prefect_stores_it(deployment)
                api.deploy(flow, {**values, "parameter_openapi_schema": parameters}, site.root)
    remember_deployed(site, deployments)


def _deploy_own_file(site: Site, api: API, num_declared: int) -> None:
    """Deploy with `prefect deploy`, which understands everything that a prefect.yaml may contain.

    It takes half a second per deployment. If it fails, raises RuntimeError with the end of its log.
    """
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    command = [*prefect, "deploy", "--all", "--prefect-file", str(own_file(site))]
    with waiting("`prefect deploy --all`"):
        done = subprocess.run(
            command, cwd=site.root, env=site.environment(), capture_output=True, text=True
        )
    (site.logs / "deploy.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0 or len(api.deployments()) < num_declared:
        raise RuntimeError(f"prefect deploy --all failed; {site.log_tail('deploy', 30)}")


def crash_dead_runs(site: Site, api: API, say: Say = print) -> None:
    """Mark flow runs whose process is gone as Crashed.

    If they stayed Running, each would hold a slot of its pool forever.
    """
    workers_alive = {p.name.removeprefix("worker-") for p in site.processes("worker-") if p.find()}
    for run in api.unfinished():
        process = site.process(f"flow-{run['id']}")
        if submitter := submitted_by(run):
            is_starting = running_process(submitter) is not None
        else:
            is_starting = not process.path.exists() and run["work_pool_name"] in workers_alive
        if not is_starting and process.find() is None:
            api.set_state(run["id"], "CRASHED", DIED)
            process.path.unlink(missing_ok=True)
            say(f"marked flow run {run['name']} as crashed: its process is gone")


def submitted_by(flow_run: dict[str, Any]) -> str | None:
    """The identity of the process that runs a flow run itself; None if a worker starts one."""
    return environment_of(flow_run).get(IN_PROCESS)


def environment_of(flow_run: dict[str, Any]) -> dict[str, str]:
    """The environment that a flow run was submitted with; empty if it was submitted through
    Prefect itself."""
    variables = flow_run["job_variables"] or {}
    return variables.get("env") or {}


def end_abandoned(site: Site, api: API, say: Say = print) -> list[dict[str, Any]]:
    """End the processes of flow runs that the server has given up, and return these flow runs.

    They sent no heartbeat for minutes (they were suspended, or their machine slept), and they hold
    locks on tables.
    """
    alive = {p.name.removeprefix("flow-"): p for p in site.processes("flow-") if p.find()}
    abandoned = api.crashed(list(alive))
    for run in abandoned:
        with waiting(f"{run['name']} to end"):
            alive[run["id"]].stop()
        say(
            f"ended the process of flow run {run['name']}, which had fallen silent and was marked"
            " as crashed"
        )
    return abandoned


def revive_worker(site: Site, pool: str, say: Say = print) -> None:
    """Start the worker of a pool if it is not running, without waiting for it."""
    with _alone(site):
        _worker(site, pool, say)


def _server(site: Site, say: Say) -> API:
    api = API.of(site)
    if api.healthy():
        return api
    process = site.process("server")
    if process.find() is None:
        _check_port(site)
        say(
            f"starting the Prefect server on http://127.0.0.1:{site.port} (log:"
            f" {site.logs / 'server.log'})"
        )
        process = site.start("server", ["-m", "flows.app.service.server_process"])
    _wait("server", site, process, api.healthy)
    return api


def _check_port_choice(site: Site) -> None:
    """Raise RuntimeError if the server runs on a port other than the chosen one."""
    kept = site.kept_port if site.port_choice else None
    if kept not in (None, site.port_choice) and site.process("server").find() is not None:
        raise RuntimeError(
            f"the server runs on port {kept}: end it with `selfplay down`, then choose port"
            f" {site.port_choice} again"
        )


def _check_port(site: Site) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", site.port))
        except OSError as problem:
            raise RuntimeError(
                f"port {site.port} on 127.0.0.1 cannot be used ({problem.strerror}): another"
                " program has it, perhaps the server of another checkout. Choose another by"
                f" `selfplay up --port N`; it is kept as PREFECT_SERVER_API_PORT in {site.env_file}"
            ) from None


def _worker(site: Site, pool: str, say: Say) -> Process | None:
    process = site.process(f"worker-{pool}")
    if process.find() is not None:
        return None
    say(f"starting a worker for the {pool} pool")
    start = ["-m", "prefect", "worker", "start", "--type", "process"]
    return site.start(f"worker-{pool}", [*start, "--pool", pool, "--name", f"selfplay-{pool}"])


def _wait_for_workers(site: Site, api: API, workers: list[Process], started: float) -> None:
    for process in workers:
        pool = process.name.removeprefix("worker-")
        _wait(process.name, site, process, lambda pool=pool: _heard_of_worker(api, pool, started))
    if workers:
        time.sleep(LAST_LOOK_S)
    for process in workers:
        _check_alive(process.name, site, process)


def _heard_of_worker(api: API, pool: str, since: float) -> bool:
    beats = [worker["last_heartbeat_time"] for worker in api.workers(pool)]
    return any(datetime.fromisoformat(beat).timestamp() >= since for beat in beats if beat)


def _wait(name: str, site: Site, process: Process, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    with waiting(f"the {name} to start"):
        while not ready():
            _check_alive(name, site, process)
            if time.monotonic() > end:
                raise RuntimeError(
                    f"the {name} did not answer within {START_S:.0f} s; {site.log_tail(name)}"
                )
            time.sleep(0.2)


def _check_alive(name: str, site: Site, process: Process) -> None:
    if process.find() is None:
        raise RuntimeError(f"the {name} ended while starting; {site.log_tail(name)}")


def _job_template(site: Site) -> dict[str, Any]:
    """The job template: a worker starts a process in the workspace, with our Python interpreter."""
    values = {
        "command": f"{sys.executable} -m flows.app.service.flow_process",
        "env": {},
        "labels": {},
        "name": None,
        "stream_output": False,
        "working_dir": str(site.root),
    }
    kinds = {
        "command": "string",
        "env": "object",
        "labels": "object",
        "name": "string",
        "stream_output": "boolean",
    }
    return {
        "job_configuration": {key: f"{{{{ {key} }}}}" for key in values},
        "variables": {
            "type": "object",
            "properties": {
                key: {"type": kinds.get(key, "string"), "default": value}
                for key, value in values.items()
            },
        },
    }


def to_deploy(
    site: Site, deployments: list[dict[str, Any]], num_there: int
) -> list[dict[str, Any]]:
    """The deployments of a site that differ from what was last deployed; all of them if the server
    has fewer."""
    if num_there < len(deployments):
        return deployments
    before = _deployed(site)
    return [d for d in deployments if before.get(_key(d)) != _fingerprint(site, d)]


def remember_deployed(site: Site, deployments: list[dict[str, Any]]) -> None:
    """Save the fingerprints of these deployments, which `to_deploy` uses to detect changes."""
    fingerprints = {_key(d): _fingerprint(site, d) for d in deployments}
    (site.home / DEPLOYED).write_text(json.dumps(fingerprints))


def _deployed(site: Site) -> dict[str, str]:
    """The fingerprints of what was last deployed; none if they cannot be read."""
    try:
        before = json.loads((site.home / DEPLOYED).read_text())
    except (OSError, ValueError):
        return {}
    return before if isinstance(before, dict) else {}


def _key(deployment: dict[str, Any]) -> str:
    return f"{deployment['entrypoint']} {deployment['name']}"


def _fingerprint(site: Site, deployment: dict[str, Any]) -> str:
    """A hash of a declaration and of the files that define its flow's parameters.

    Every method has the parameters of `Method`; flows of a site's own prefect.yaml have others.
    """
    own = own_file(site)
    digest = hashlib.sha256(f"{site.root} {deployment}".encode())
    files = {METHOD}
    if own.exists():
        files = {own, site.code / deployment["entrypoint"].split(":")[0]}
    for file in sorted(file for file in files if file.exists()):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _status_row(site: Site, name: str) -> dict[str, Any]:
    process = site.process(name).find()
    pid = None
    since = None
    if process is not None:
        pid = process.pid
        since = datetime.fromtimestamp(process.create_time()).isoformat(" ", "seconds")
    return {"name": name, "pid": pid, "since": since, "log": str(site.logs / f"{name}.log")}


@contextlib.contextmanager
def _alone(site: Site) -> Iterator[None]:
    """Allow one `up` or `down` at a time; a second one waits, and names the process that it waits
    for."""
    site.home.mkdir(parents=True, exist_ok=True)
    with open(site.home / "services.lock", "a+") as file:
        with waiting(lambda: f"process {_text(file)}, which starts or ends the services"):
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()
