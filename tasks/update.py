"""One GRPO update: stored datums in, a new policy out, trained by TRL in a process of its own (`tasks.trainer`)."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from tasks.child_process import die_with_parent
from tasks.engine import Policy
from tasks.grpo import GRPOSettings, UpdateJob, UpdateResult
from tasks.stage import Rows, stage
from warehouse.schemas import UPDATES
from warehouse.store import Draft, Table, hash_folder


class TrainerDied(RuntimeError):
    """The trainer's process ended without a result; nothing was published."""


class Trainer:
    """Runs updates: in one resident process (imports paid once), or under torchrun when `num_processes` is above
    one."""

    def __init__(self, log_file: Path, num_processes: int = 1, device: str = "cpu", threads: int = 1) -> None:
        self.log_file, self.num_processes, self.device, self.threads = log_file, num_processes, device, threads
        self._pool: ProcessPoolExecutor | None = None

    def warm_up(self) -> None:
        """Start the resident process and its imports now, without waiting for them."""
        if self.num_processes == 1:
            self._resident().submit(_import_trainer)

    def train(self, job: UpdateJob) -> UpdateResult:
        """Raises what `tasks.trainer.train` raises, and TrainerDied."""
        if self.num_processes > 1:
            return self._torchrun(job)
        try:
            return self._resident().submit(_train, job).result()
        except BrokenProcessPool:
            self.close()
            raise TrainerDied(f"the trainer's process was killed; its log is {self.log_file}") from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _resident(self) -> ProcessPoolExecutor:
        if self._pool is None:
            environment = {"ACCELERATE_USE_CPU": "true"} if self.device == "cpu" else {}
            self._pool = ProcessPoolExecutor(
                1, get_context("spawn"), _start, (str(self.log_file), self.threads, environment)
            )
        return self._pool

    def _torchrun(self, job: UpdateJob) -> UpdateResult:
        job.out.mkdir(parents=True, exist_ok=True)
        spec = job.out.parent / "job.json"
        spec.write_text(job.model_dump_json())
        environment = {**os.environ, **({"ACCELERATE_USE_CPU": "true"} if self.device == "cpu" else {})}
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.num_processes)]
        with open(self.log_file, "a") as log:
            command = [sys.executable, *launcher, "-m", "tasks.trainer", str(spec)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        spec.unlink()
        if done.returncode != 0:
            raise TrainerDied(f"torchrun ended with {done.returncode}; its log is {self.log_file}")
        return UpdateResult.model_validate_json(done.stdout.strip().splitlines()[-1])


@stage(UPDATES, tools=("trainer",))
def update(
    batch: Table,
    *,
    policy: Policy,
    reference: Policy,
    optimizer_state: Path | None,
    settings: GRPOSettings,
    role: str,
    trainer: Trainer,
    address: str,
    draft: Draft,
) -> Rows:
    """Yield one row an optimizer step; the new policy and its optimizer state lie in the table's files.

    Raises ValueError for an empty batch and `tasks.grpo.NonFiniteUpdate` before anything is published.
    """
    job = UpdateJob(
        batch=batch.folder,
        policy=Path(policy.weights),
        adapter=Path(policy.adapter) if policy.adapter else None,
        reference=Path(reference.weights),
        optimizer_state=optimizer_state,
        out=draft.files / "update",
        settings=settings,
    )
    result = trainer.train(job)
    folder = f"{address}/files/update/{result.policy.name}"
    full = settings.lora is None
    for step in result.steps:
        yield {
            "policy": address,
            "parent": policy.id,
            "role": role,
            "policy_hash": hash_folder(result.policy),
            "weights": folder if full else policy.weights,
            "adapter": None if full else folder,
            "optimizer_state": f"{address}/files/update/{result.optimizer_state.name}",
            "optimizer_step": step.step,
            "metrics": {k: float(v) for k, v in step.model_dump(exclude={"step"}).items() if v is not None},
        }


def updated_policy(table: Table) -> tuple[Policy, Path | None]:
    """The policy that came out of an update, and its optimizer's state."""
    row = table.rows()[-1]
    folder = table.store.folder
    weights = str(folder(row["weights"])) if row["adapter"] is None else row["weights"]
    adapter = str(folder(row["adapter"])) if row["adapter"] else None
    policy = Policy(id=row["policy"], weights=weights, adapter=adapter, content_hash=row["policy_hash"])
    return policy, folder(row["optimizer_state"])


def _start(log_file: str, threads: int, environment: dict[str, str]) -> None:
    die_with_parent()
    os.environ.update(environment)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.modules.setdefault("vllm", None)  # type: ignore[arg-type]  # halves TRL's import
    import torch

    torch.set_num_threads(threads)


def _import_trainer() -> None:
    import tasks.trainer  # noqa: F401


def _train(job: UpdateJob) -> UpdateResult:
    from tasks.trainer import train

    return train(job)
