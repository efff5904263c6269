"""`torchrun cpu_fsdp.py JOB.json`: an update by processes that Accelerate mistakes for GPUs, so
that it shards on CPUs.

Fails if a process holds more in memory at once than it has to.
"""

import sys
from typing import Any

from tasks.processes.child_process import leave
from tasks.processes.imports import leave_out

if __name__ == "__main__":
    leave_out("vllm", "sklearn", "scipy")  # as the trainer's own processes do

import torch
from accelerate.state import DistributedType, PartialState
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from tasks.training import trainer
from tasks.training.stored_rollouts import StoredRolloutsTrainer

score = StoredRolloutsTrainer._get_per_token_logps_and_entropies


def score_in_float32(*args, **kwargs):
    found = score(*args, **kwargs)
    assert found[0].dtype == torch.float32, f"log-probabilities were rounded to {found[0].dtype}"
    return found


def keep_no_whole_gradients(param: FSDPParam) -> None:
    raise AssertionError(f"{param._param_fqn}: a whole gradient waits for the next micro-batch")


def watched_pre_forward(group: FSDPParamGroup, module: Any, args: Any, kwargs: Any) -> Any:
    layers = {
        name.split(".layers.")[1].split(".")[0]
        for p in group.fsdp_params
        if ".layers." in (name := p._param_fqn)
    }
    assert len(layers) <= 1, f"layers {sorted(layers)} are gathered at once"
    return pre_forward(group, module, args, kwargs)


def watched_post_forward(state: FSDPState, module: Any, inputs: Any, output: Any) -> Any:
    output = post_forward(state, module, inputs, output)
    if state._mp_policy.param_dtype == torch.bfloat16 and isinstance(output, torch.Tensor):
        assert output.dtype == torch.bfloat16, f"{type(module).__name__} returns {output.dtype}"
    return output


pre_forward = FSDPParamGroup.pre_forward
post_forward = FSDPState._post_forward


def take_cpus_for_gpus() -> None:
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    trainer._is_sharded = lambda settings: settings.lora is None
    StoredRolloutsTrainer._get_per_token_logps_and_entropies = score_in_float32
    FSDPParam.to_accumulated_grad_if_needed = keep_no_whole_gradients
    FSDPParamGroup.pre_forward = watched_pre_forward
    FSDPState._post_forward = watched_post_forward


if __name__ == "__main__":
    take_cpus_for_gpus()
    leave(trainer.main(sys.argv[1:]))
