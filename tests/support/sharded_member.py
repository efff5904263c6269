"""`python -m tests.support.sharded_member FILE_DESCRIPTOR`: a trainer process that shards
weights on CPUs."""

import sys

from tasks.engines.child import connection
from tasks.processes.child_process import leave
from tasks.processes.imports import leave_out
from tasks.training.member import serve

if __name__ == "__main__":
    leave_out("vllm", "sklearn", "scipy")  # as `serve` does, before the imports below
    from tasks.training import policy_files
    from tests.support.cpu_fsdp import take_cpus_for_gpus

    take_cpus_for_gpus()
    policy_files.FILE_SIZE = 4_000  # so that both processes write some of a policy
    serve(connection(sys.argv[1:]))
    leave(0)
