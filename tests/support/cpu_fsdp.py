"""`torchrun cpu_fsdp.py JOB.json`: an update by processes that Accelerate takes for GPUs, so that it shards on CPUs."""

import sys

import torch
from accelerate.state import DistributedType, PartialState

from tasks.training import trainer
from tasks.training.stored_rollouts import StoredRolloutsTrainer

score = StoredRolloutsTrainer._get_per_token_logps_and_entropies


def score_in_float32(*args, **kwargs):
    found = score(*args, **kwargs)
    assert found[0].dtype == torch.float32, f"log-probabilities were rounded to {found[0].dtype}"
    return found


def main() -> int:
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    trainer._is_sharded = lambda settings: settings.lora is None
    StoredRolloutsTrainer._get_per_token_logps_and_entropies = score_in_float32
    return trainer.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
