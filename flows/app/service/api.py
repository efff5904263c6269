"""The few calls of Prefect's REST API (3.7.7) that we need.

Prefect's own client takes seconds to import; this module takes milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from flows.app.service.site import Site

TAKEN = ("PENDING", "RUNNING", "CANCELLING")  # states in which a flow run holds a slot of its pool
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LOGS_PER_CALL = 200
LINES_WRITTEN_PER_CALL = 1000
BUSY_S = 60.0
# the server waits up to 30 s for its database (prefect.toml), more than once in a request
ANSWER_S = 90.0
HEARTBEATS = "flow runs that fell silent"
SILENT = "its process fell silent; repeat the command to resume from what is published"


class PatientTransport(httpx.HTTPTransport):
    """Retries requests while the server is too busy.

    The server answers 503 while another request holds its database.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        end = time.monotonic() + BUSY_S
        while True:
            response = super().handle_request(request)
            if response.status_code != 503 or time.monotonic() > end:
                return response
            response.close()
            time.sleep(0.5)


@dataclass(frozen=True)
class API:
    """A site's server."""

    http: httpx.Client

    @classmethod
    def of(cls, site: Site) -> API:
        """The server of a site."""
        return cls.at(site.url, site.secret)

    @classmethod
    def at(cls, url: str, secret: str) -> API:
        """The server at `url`, with `secret` as `user:password`. Bypasses any proxy that the
        environment names."""
        user, password = secret.split(":", 1)
        return cls(
            httpx.Client(
                base_url=url, auth=(user, password), timeout=ANSWER_S, transport=PatientTransport()
            )
        )

    def healthy(self) -> bool:
        """Whether the server answers within five seconds, and accepts the secret."""
        try:
            return self.http.post("/flows/count", json={}, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def set_pool(self, name: str, concurrency_limit: int, template: dict[str, Any]) -> None:
        """Create a process work pool, or update an existing one to these values.

        `concurrency_limit`: maximum number of concurrent flow runs. `template`: the pool's base job
        template. Raises RuntimeError if the server refuses.
        """
        values = {"base_job_template": template, "concurrency_limit": concurrency_limit}
        made = self.http.post("/work_pools/", json={"name": name, "type": "process", **values})
        if made.status_code == 409:
            made = self.http.patch(f"/work_pools/{name}", json=values)
        _content(made)

    def expect_heartbeats(self, within_s: float) -> None:
        """Have the server mark flow runs as Crashed after `within_s` without a heartbeat."""
        ends = [f"prefect.flow-run.{state.capitalize()}" for state in ENDED]
        wanted = {
            "name": HEARTBEATS,
            "description": (
                f"A flow run without a heartbeat for {within_s:.0f} s is Crashed and gives its slot"
                " back."
            ),
            "enabled": True,
            "trigger": {
                "type": "event",
                "posture": "Proactive",
                "match": {"prefect.resource.id": ["prefect.flow-run.*"]},
                "for_each": ["prefect.resource.id"],
                "after": ["prefect.flow-run.heartbeat"],
                "expect": ["prefect.flow-run.heartbeat", *ends],
                "threshold": 1,
                "within": within_s,
            },
            "actions": [
                {
                    "type": "change-flow-run-state",
                    "state": "CRASHED",
                    "name": "Crashed",
                    "message": SILENT,
                }
            ],
        }
        made = [a for a in self._post("/automations/filter", {}) if a["name"] == HEARTBEATS]
        if [a["description"] for a in made] == [wanted["description"]]:
            return
        for automation in made:
            _content(self.http.delete(f"/automations/{automation['id']}"))
        self._post("/automations/", wanted)

    def workers(self, pool: str) -> list[dict[str, Any]]:
        """The workers of a pool, as the server describes them. Raises RuntimeError if there is no
        such pool."""
        return self._post(f"/work_pools/{pool}/workers/filter", {})

    def flow_names(self) -> dict[str, str]:
        """Flow names by id."""
        return {flow["id"]: flow["name"] for flow in self._post("/flows/filter", {})}

    def deployments(self) -> list[str]:
        """Deployment names in the form `flow/deployment`."""
        flows = self.flow_names()
        return sorted(
            f"{flows[d['flow_id']]}/{d['name']}" for d in self._post("/deployments/filter", {})
        )

    def deploy(self, flow: str, values: dict[str, Any], directory: Path) -> None:
        """Create or replace a deployment of a flow; its flow runs start in `directory`.

        `values`: the deployment's fields, including its name. Raises RuntimeError if the server
        refuses.
        """
        step = "prefect.deployments.steps.set_working_directory"
        pull_step = {step: {"directory": str(directory)}}
        flow_id = self._post("/flows/", {"name": flow})["id"]
        self._post("/deployments/", {"flow_id": flow_id, "pull_steps": [pull_step], **values})

    def submit(
        self,
        deployment: str,
        parameters: dict[str, Any],
        environment: dict[str, str] | None = None,
        state: str = "SCHEDULED",
    ) -> dict[str, Any]:
        """Create a flow run of `flow/deployment`.

        `environment` overrides that of the worker, pool and deployment. Workers only take flow runs
        whose state is SCHEDULED.

        Raises ValueError, which lists the deployments, if there is none of this name.
        """
        response = self.http.get(f"/deployments/name/{deployment}")
        if response.status_code == 404:
            raise ValueError(
                f"no deployment {deployment}; there are {', '.join(self.deployments())}"
            )
        body = {
            "parameters": parameters,
            "job_variables": {"env": environment or {}},
            "state": {"type": state, "name": state.capitalize()},
        }
        if parameters.get("run"):
            body["name"] = parameters["run"]  # for the wait; the flow later sets the same name
        return self._post(f"/deployments/{_content(response)['id']}/create_flow_run", body)

    def flow_run(self, flow_run_id: str) -> dict[str, Any]:
        """A flow run, as the server describes it. Raises RuntimeError if there is none with this
        id."""
        return _content(self.http.get(f"/flow_runs/{flow_run_id}"))

    def unfinished(self, waiting: bool = False) -> list[dict[str, Any]]:
        """Flow runs of our pools that a worker has taken and that have not ended.

        `waiting`: include those that wait for a worker.
        """
        states = [*TAKEN, "SCHEDULED"] if waiting else TAKEN
        wanted = {"state": {"type": {"any_": states}}}
        runs = self._post("/flow_runs/filter", {"flow_runs": wanted})
        return [run for run in runs if run["work_pool_name"]]

    def crashed(self, flow_run_ids: list[str]) -> list[dict[str, Any]]:
        """The flow runs, among those with these ids, that are marked Crashed."""
        if not flow_run_ids:
            return []
        wanted = {"id": {"any_": flow_run_ids}, "state": {"type": {"any_": ["CRASHED"]}}}
        return self._post("/flow_runs/filter", {"flow_runs": wanted})

    def set_state(self, flow_run_id: str, state_type: str, message: str = "") -> None:
        """Set the state of a flow run, whatever its current state, with a message for people.

        `state_type` is in capitals, such as CRASHED.
        """
        state = {"type": state_type, "name": state_type.capitalize(), "message": message}
        self._post(f"/flow_runs/{flow_run_id}/set_state", {"state": state, "force": True})

    def record_task(self, flow_run_id: str, task: str, name: str, message: str) -> None:
        """Add a completed task run of the task `task` to a flow run, under `name`, with a message
        for people."""
        running = {
            "flow_run_id": flow_run_id,
            "task_key": task,
            "dynamic_key": name,
            "name": name,
            "state": {"type": "RUNNING", "name": "Running"},
        }
        task_run = self._post("/task_runs/", running)
        completed = {"type": "COMPLETED", "name": "Completed", "message": message}
        self._post(f"/task_runs/{task_run['id']}/set_state", {"state": completed, "force": True})

    def logs(self, flow_run_id: str, after: str) -> list[dict[str, Any]]:
        """Log lines of a flow run and its tasks after a timestamp, oldest first."""
        chosen = {"flow_run_id": {"any_": [flow_run_id]}, "timestamp": {"after_": after}}
        request = {"logs": chosen, "sort": "TIMESTAMP_ASC", "limit": LOGS_PER_CALL}
        page = self._post("/logs/filter", request)
        lines = list(page)
        while len(page) == LOGS_PER_CALL:
            page = self._post("/logs/filter", {**request, "offset": len(lines)})
            lines += page
        return lines

    def write_logs(self, lines: list[dict[str, Any]]) -> None:
        """Add lines to the log of flow runs.

        A line has a name, level, message, timestamp and flow_run_id.
        """
        for first in range(0, len(lines), LINES_WRITTEN_PER_CALL):
            self._post("/logs/", lines[first : first + LINES_WRITTEN_PER_CALL])

    def _post(self, path: str, body: Any) -> Any:
        return _content(self.http.post(path, json=body))


def _content(response: httpx.Response) -> Any:
    """The content of the server's answer. Raises RuntimeError with its message if it refused."""
    if response.is_error:
        raise RuntimeError(
            f"Prefect's server answered {response.request.method} {response.url.path} by"
            f" {response.status_code}: {response.text[:300]} (`selfplay services` shows its log)"
        )
    if response.content:
        return response.json()
    return None
