"""The Ray cluster that corpus preparation and engines share.

Ray's own variable RAY_ADDRESS names it, which launchers on Slurm and Kubernetes set.
"""

from __future__ import annotations

import os
from typing import Any

ADDRESS = "RAY_ADDRESS"


def connect(purpose: str, address: str | None = None, num_cpus: int | None = None) -> Any:
    """The module `ray`, connected to a cluster.

    That is the cluster this process has joined already, else the one at `address` or RAY_ADDRESS,
    else, with `num_cpus`, a new one on this machine. The output of Ray's workers goes to Ray's own
    logs.

    Raises ValueError if Ray is not installed, RuntimeError if the cluster does not answer.
    """
    try:
        import ray
    except ImportError as problem:
        raise ValueError(
            f"{purpose} on Ray need the extra `cluster`: pip install 'selfplay-flows[cluster]'"
        ) from problem
    if ray.is_initialized():
        return ray
    address = address or os.environ.get(ADDRESS)
    try:
        if address or num_cpus is None:
            ray.init(address or "auto", log_to_driver=False)
        else:
            ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
    except ConnectionError as problem:
        raise RuntimeError(
            f"{purpose}: no Ray cluster answers at {address or 'this machine'}: start one (`ray"
            f" start --head`, or the files of `selfplay launch`) and set {ADDRESS} to HOST:PORT"
        ) from problem
    return ray
