"""`python -m tests.support.sharded_member FILE_DESCRIPTOR`, or `HOST PORT`: a trainer process that
shards weights on CPUs."""

import sys
from typing import Any

from tasks.engines.child import connection
from tasks.processes.child_process import leave
from tasks.processes.imports import leave_out
from tasks.training.grpo import UpdateJob
from tasks.training.member import serve

if __name__ == "__main__":
    leave_out("vllm", "sklearn", "scipy")  # as `serve` does, before the imports below
    from tasks.training import policy_files
    from tests.support.cpu_fsdp import take_cpus_for_gpus

    pipe: Any = connection(sys.argv[1:])
    receive = pipe.recv
    waiting = [take_cpus_for_gpus]

    def receive_and_shard() -> Any:
        """Receive a request. Before the first job, this process meets the others: on a node, it
        learns only then where they are."""
        request = receive()
        if isinstance(request, UpdateJob) and waiting:
            waiting.pop()()
        return request

    pipe.recv = receive_and_shard
    policy_files.FILE_SIZE = 4_000  # so that both processes write some of a policy
    serve(pipe)
    leave(0)
