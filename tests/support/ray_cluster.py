"""A Ray cluster in this machine: a head without CPUs, and nodes of one core."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

WANTED = "SELFPLAY_TEST_CLUSTER"
# Ray gives a node 30 s to start, which cannot be changed: on a busy machine that fails at random
needs_cluster = pytest.mark.skipif(
    WANTED not in os.environ, reason="starts a Ray cluster of two nodes: `make test-cluster`"
)
STORE_BYTES = 80 << 20  # of objects: engines send none through Ray
START_TRIES = 8


class Nodes:
    """The cluster's nodes, which tests may kill and add."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": STORE_BYTES,
                "include_dashboard": False,
            },
        )
        self.nodes: list[Any] = []

    def add(self) -> Any:
        """Add a node. Ray gives one 30 s to start, which a loaded machine may not keep."""
        for remaining in reversed(range(START_TRIES)):
            try:
                node = self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
                break
            except Exception as problem:  # Ray raises no specific class here
                if not remaining or "timed out during startup" not in str(problem):
                    raise
        self.nodes.append(node)
        self.cluster.wait_for_nodes()
        return node

    def holding(self, raylet: int) -> Any:
        """The node of a raylet's process."""
        return next(
            node for node in self.nodes if node.all_processes["raylet"][0].process.pid == raylet
        )

    def kill(self, node: Any) -> None:
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@contextlib.contextmanager
def cluster() -> Iterator[Nodes]:
    """A head and two nodes of one core, which RAY_ADDRESS names."""
    import ray

    before = os.getcwd()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        patch.setenv("RAY_TMPDIR", folder)
        # a loaded machine must not look like a dead one
        patch.setenv("RAY_health_check_timeout_ms", "60000")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray gives its workers the least priority, and what they start inherits that
        patch.setenv("RAY_worker_niceness", "0")
        nodes = Nodes()
        try:
            patch.setenv("RAY_ADDRESS", nodes.cluster.address)
            nodes.add()
            nodes.add()
            yield nodes
        finally:
            ray.shutdown()
            nodes.cluster.shutdown()
            os.chdir(before)
