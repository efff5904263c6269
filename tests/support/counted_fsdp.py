"""`torchrun counted_fsdp.py JOB.json PEAKS.json`: count the tensors of the trainer on CPUs with
sharded weights.

Every process writes bytes by kind at the peak of each phase; phases are numbered by micro-batch.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tasks.processes.imports import leave_out

if __name__ == "__main__":
    leave_out("vllm", "sklearn", "scipy")  # as the trainer's own processes do

import torch
from accelerate.state import DistributedType, PartialState

from tasks.training import head, trainer
from tasks.training.datums import read_datums
from tasks.training.grpo import UpdateJob
from tasks.training.stored_rollouts import StoredRolloutsTrainer
from tests.support.memory_tracker import MemoryTracker


class CountedTrainer(StoredRolloutsTrainer):
    tracker = MemoryTracker()
    number = 0

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(*args, **kwargs)
        for model, kind in ((self.model, "weights"), (self.ref_model, "reference")):
            for p in model.parameters():
                self.tracker.see(p, kind)
        return prepared

    def _reference_logps(self, inputs: dict) -> torch.Tensor:
        self.number += 1
        self.tracker.phase = f"reference {self.number}"
        return super()._reference_logps(inputs)

    def _compute_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        self.tracker.phase = f"forward {self.number}"
        loss = super()._compute_loss(model, inputs)
        self.tracker.phase = f"backward {self.number}"
        return loss

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        self.tracker.phase = "optimizer"
        return super()._get_grad_norm(*args, **kwargs)


def main(job_file: str, peaks: str) -> None:
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    trainer._is_sharded = lambda settings: True
    head.fit_tiles = lambda labels: None  # GPUs have TRL's tiles
    trainer.StoredRolloutsTrainer = CountedTrainer
    job = UpdateJob.model_validate_json(Path(job_file).read_text())
    made = trainer.build_trainer(job, read_datums(job.batch))
    with CountedTrainer.tracker:
        made.train()
    if os.environ["RANK"] == "0":
        Path(peaks).write_text(json.dumps(CountedTrainer.tracker.peaks))
    torch.distributed.barrier()
    # Gloo's threads can abort a process that shuts its interpreter down
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
