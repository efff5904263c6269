"""One update (GRPO, SFT, DPO or distillation): stored datums in, a new policy out.

TRL trains it, in separate processes.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tasks.engines.child import OUT_OF_MEMORY
from tasks.engines.node_host import Seat
from tasks.models.engine import Policy, local_folder
from tasks.models.yarn import Yarn
from tasks.stage import Rows, stage
from tasks.training.group import Group, Place
from tasks.training.grpo import GRPOSettings, UpdateJob, UpdateResult
from warehouse.behind import BackgroundWork
from warehouse.clean import check_kept
from warehouse.draft import Draft, Shards, write_json
from warehouse.schemas import UPDATES, Row
from warehouse.store import Table

# the trainer's log-probabilities of some rows: see `tasks.probe`
PROBES_FILE = "probes.json"
log = logging.getLogger("selfplay")


class Trainer:
    """Run updates in a group of processes that keep the trained weights in memory for the next
    update.

    With `resident=False` the processes end after each update: they leave nothing on the GPU and no
    weights in host memory. `place` and `seats`: see `Group`.
    """

    def __init__(
        self,
        log_file: Path,
        num_processes: int = 1,
        device: str = "cpu",
        threads: int = 1,
        checkpoint_s: float = 600.0,
        resident: bool = True,
        place: Place = "local",
        seats: Callable[[], Sequence[Seat]] | None = None,
    ) -> None:
        self.group = Group(log_file, num_processes, device, threads, place, seats)
        self.checkpoint_s = checkpoint_s
        self.resident = resident

    @property
    def num_gpus(self) -> int:
        """GPUs in use: one for each process, none on CPUs."""
        if self.group.device == "cuda":
            return self.group.num_processes
        return 0

    def train(self, job: UpdateJob) -> UpdateResult:
        """Train; if memory runs out, halve the micro-batch, down to a row or a pair, and continue.

        Raises what `tasks.training.trainer.train` raises, and TrainerDied; and RuntimeError if
        memory runs out in an update whose loss depends on the micro-batch.
        """
        job = job.model_copy(
            update={"checkpoint_s": self.checkpoint_s, "state_later": self.resident}
        )
        while True:
            try:
                return self._train(job)
            except (RuntimeError, MemoryError) as problem:
                half = job.settings.half_micro_batch
                if not OUT_OF_MEMORY.search(repr(problem)) or not half:
                    raise
                if job.settings.depends_on_micro_batch:
                    raise RuntimeError(
                        "the update ran out of memory, and smaller micro-batches would change the"
                        ' loss of loss_type "bnpo": lower update.micro_batch_size'
                    ) from problem
                log.warning("the update ran out of memory: going on with micro-batches of %d", half)
                self.close()
                shutil.rmtree(job.out, ignore_errors=True)
                smaller = job.settings.model_copy(update={"micro_batch_size": half})
                job = job.model_copy(update={"settings": smaller})

    def _train(self, job: UpdateJob) -> UpdateResult:
        try:
            return self.group.train(job)
        finally:
            if not self.resident:
                self.close()

    def write_state(self, folder: Path) -> None:
        """Write the optimizer state that a job left in memory; raises as `Group.write_state`
        does."""
        self.group.write_state(folder)

    def close(self) -> None:
        """End the processes."""
        self.group.close()


@stage(UPDATES, tools=("trainer",), code=("tasks.training.trainer",))
def update(  # noqa: PLR0913 - all that a policy depends on, and the tools
    batch: Table,
    *,
    policy: Policy,
    reference: Policy,
    optimizer_state: str | None,
    settings: GRPOSettings,
    role: str,
    reference_logprobs: Table | None = None,
    yarn: Yarn | None = None,
    trainer: Trainer,
    address: str,
    draft: Draft,
    shards: Shards,
    behind: BackgroundWork,
) -> Rows:
    """Yield one row per optimizer step; the new policy and its optimizer state are among the
    table's files.

    The state may still be written while later stages run: the next update waits for it. If a run
    ends before it is written, the update is rerun. A killed update resumes from the last optimizer
    step that it saved in `shards`.

    `optimizer_state` is what `updated_policy` returned for the previous update.
    `reference_logprobs` are the batch's log-probabilities under `reference`, if an engine scored
    them, or, in distillation, under the teacher. `yarn` is that of the engine.

    Raises, before anything is published: ValueError for an empty batch, Cleaned if policy or state
    were freed, `grpo.NonFiniteUpdateError`.
    """
    behind.wait()
    state = batch.runs / optimizer_state if optimizer_state else None
    for start in (policy.adapter or policy.weights, state):
        check_kept(batch.root, start, again="updates")
    job = UpdateJob(
        batch=batch.folder,
        policy=local_folder(policy.weights),
        adapter=Path(policy.adapter) if policy.adapter else None,
        reference=local_folder(reference.weights),
        reference_logprobs=reference_logprobs.folder if reference_logprobs else None,
        optimizer_state=state,
        out=draft.files / "update",
        settings=settings,
        yarn=yarn,
        checkpoints=shards.folder,
    )
    result = trainer.train(job)
    draft.tokens = result.num_tokens
    if not result.state_is_written:
        draft.later(f"{job.out.name}/{result.optimizer_state.name}", trainer.write_state)
    if result.probed:
        write_json(job.out / PROBES_FILE, [probed.model_dump() for probed in result.probed])
    columns = {
        "policy": address,
        "parent": policy.id,
        "role": role,
        "policy_hash": draft.hash_folder(result.policy),
    }
    yield from _steps(columns | _places(address, policy, result, settings), result)


def _steps(columns: Row, result: UpdateResult) -> Iterator[Row]:
    for step in result.steps:
        metrics = {
            k: float(v) for k, v in step.model_dump(exclude={"step"}).items() if v is not None
        }
        yield {**columns, "optimizer_step": step.step - 1, "metrics": metrics}


def _places(
    address: str, policy: Policy, result: UpdateResult, settings: GRPOSettings
) -> dict[str, str | None]:
    """The paths of the new policy and its optimizer state in the store."""
    files = f"{address}/files/update"
    full = settings.lora is None
    folder = f"{files}/{result.policy.name}"
    return {
        "weights": folder if full else policy.weights,
        "adapter": None if full else folder,
        "optimizer_state": f"{files}/{result.optimizer_state.name}",
    }


def updated_policy(table: Table) -> tuple[Policy, str]:
    """The policy that an update trained, and its optimizer state (a path relative to the store's
    runs)."""
    row = table.rows()[-1]
    weights = str(table.file(row["weights"])) if row["adapter"] is None else row["weights"]
    adapter = str(table.file(row["adapter"])) if row["adapter"] else None
    policy = Policy(
        id=row["policy"], weights=weights, adapter=adapter, content_hash=row["policy_hash"]
    )
    return policy, table.file(row["optimizer_state"]).relative_to(table.runs).as_posix()
