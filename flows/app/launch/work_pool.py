"""A Prefect work pool whose flow runs are Kubernetes jobs, and a deployment that puts a run in it.

Prefect's Kubernetes worker starts one pod for each flow run, so the run must fit on one node. If
Kubernetes ends the pod, Prefect reschedules the flow run, which resumes from its published tables.
A time limit would only restart it, so there is none: cancel the flow run to end it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from flows.app.launch.files import docker_file
from flows.app.launch.job import Job

PULL_IMAGE_S = 1800  # the image is several GB large
ENVIRONMENT = {  # as in the settings of the project's own server
    "PREFECT_LOGGING_EXTRA_LOGGERS": "selfplay",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
RUN_BY_PREFECT = "prefect flow-run execute"
# a shell does not forward the signal with which Kubernetes ends a pod
RUN_AND_PUSH = "{run} & run=$!; trap 'kill $run; wait $run; exit 143' TERM; wait $run; {push}"
HEAD = """\
# {flow} as run {run}: one node, about {hours} h, computed by `selfplay plan`.
# With PREFECT_API_URL set to the cluster's server:
#   prefect work-pool create {pool} --type kubernetes --base-job-template {pool}.pool.json
#   prefect worker start --pool {pool}        # in the cluster, with prefect-kubernetes installed
#   prefect deploy --all --prefect-file THIS_FILE
#   prefect deployment run {flow}/{name}      # repeat it to resume
"""


@dataclass(frozen=True)
class Deployment:
    """What Prefect starts; `entrypoint` tells Prefect where to find the flow, for example
    `flows.scope.flow:scope_iteration.flow`."""

    name: str
    entrypoint: str
    parameters: dict[str, Any]


def files_of_pool(pool: str, job: Job, run: Deployment, image: str, claim: str) -> dict[str, str]:
    """The texts, by file name, of a pool's base job template, a deployment and the Dockerfile.

    `claim`: a ReadWriteMany claim with the store and the models. Raises ValueError for a job that
    needs several nodes.
    """
    if job.num_nodes > 1:
        raise ValueError(
            f"{job.flow} needs {job.num_nodes} nodes, and a Prefect work pool starts one pod: leave"
            " out --work-pool for a RayJob"
        )
    head = HEAD.format(flow=job.flow, run=job.run, hours=job.hours, pool=pool, name=run.name)
    deployment = yaml.safe_dump(deployment_of(pool, job, run), sort_keys=False, width=1000)
    return {
        f"{pool}.pool.json": json.dumps(pool_template(image, claim), indent=2) + "\n",
        f"{job.label}.prefect.yaml": head + deployment,
        **docker_file(),
    }


def deployment_of(pool: str, job: Job, run: Deployment) -> dict[str, Any]:
    """The content of a file for `prefect deploy --prefect-file`: a deployment with the job's GPUs
    and memory."""
    variables: dict[str, Any] = {"gpus": job.gpus_per_node, "memory": f"{job.host_gb}Gi"}
    if job.push is not None:
        script = RUN_AND_PUSH.format(run=RUN_BY_PREFECT, push=job.push)
        variables["command"] = shlex.join(["bash", "-euo", "pipefail", "-c", script])
    return {
        "name": "selfplay",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "/app"}}],
        "deployments": [
            {
                "name": run.name,
                "entrypoint": run.entrypoint,
                "parameters": run.parameters,
                "work_pool": {"name": pool, "job_variables": variables},
            }
        ],
    }


def pool_template(image: str, claim: str) -> dict[str, Any]:
    """The base job template of a work pool of type `kubernetes`: the one of prefect-kubernetes,
    with GPUs, shared memory and the claim added."""
    container = {
        "name": "prefect-job",  # Prefect's worker looks for this name
        "image": "{{ image }}",
        "args": "{{ command }}",
        "env": "{{ env }}",
        "resources": {
            "limits": {"nvidia.com/gpu": "{{ gpus }}"},
            "requests": {"nvidia.com/gpu": "{{ gpus }}", "memory": "{{ memory }}"},
        },
        "volumeMounts": [
            {"name": "shared", "mountPath": "/selfplay"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": "{{ claim }}"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": "{{ name }}-",
            "namespace": "{{ namespace }}",
            "labels": "{{ labels }}",
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "template": {"spec": pod},
        },
    }
    return {
        "job_configuration": {
            "name": "{{ name }}",
            "command": "{{ command }}",
            "env": "{{ env }}",
            "labels": "{{ labels }}",
            "namespace": "{{ namespace }}",
            "job_manifest": manifest,
            "pod_watch_timeout_seconds": PULL_IMAGE_S,
            "stream_output": True,
        },
        "variables": {
            "type": "object",
            "properties": {
                "name": _text("name of the jobs"),
                "command": _text(f"what the pod runs (default: {RUN_BY_PREFECT})"),
                "env": {"type": "object", "default": ENVIRONMENT},
                "labels": {"type": "object", "default": {}},
                "namespace": _text("namespace of the jobs", "default"),
                "image": _text("an image made from our Dockerfile", image),
                "claim": _text("a ReadWriteMany claim: the store and the models", claim),
                "gpus": {"type": "integer", "minimum": 1, "default": 1},
                "memory": _text("memory of the pod, such as 256Gi", "64Gi"),
            },
        },
    }


def _text(description: str, default: str | None = None) -> dict[str, Any]:
    return {"type": "string", "description": description, "default": default}
