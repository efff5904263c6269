"""Out of memory: halve what is done at once, log it, continue."""

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tasks.engines import pool
from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, EngineDied
from tasks.training.grpo import GRPOSettings, UpdateJob
from tasks.update import Trainer

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB"
CPU = (
    "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to"
    " allocate 9 bytes"
)


class SmallTrainer(Trainer):
    """Has room for a limited number of rows."""

    room = 4
    problem = RuntimeError(CUDA)

    def _train(self, job: UpdateJob) -> Any:
        job.out.mkdir(parents=True)
        (job.out / "half a policy").touch()
        if job.settings.micro_batch_size > self.room:
            raise self.problem
        return job


def job(tmp_path: Path, **settings: Any) -> UpdateJob:
    batch, policy, reference, out = (
        tmp_path / name for name in ("batch", "policy", "reference", "out")
    )
    return UpdateJob(
        batch=batch, policy=policy, reference=reference, out=out, settings=GRPOSettings(**settings)
    )


@pytest.mark.parametrize(
    "problem", [RuntimeError(CUDA), RuntimeError(CPU), MemoryError("out of memory")]
)
def test_an_update_out_of_memory_goes_on_with_smaller_micro_batches(tmp_path, caplog, problem):
    trainer = SmallTrainer(tmp_path / "log")
    trainer.problem = problem
    done: Any = trainer.train(job(tmp_path, micro_batch_size=16, optimizer_steps=2))
    assert done.settings.micro_batch_size == 4
    assert done.settings.optimizer_steps == 2
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "the update ran out of memory: going on with micro-batches of 8",
        "the update ran out of memory: going on with micro-batches of 4",
    ]


def test_an_update_that_has_no_room_for_one_row_fails(tmp_path):
    trainer = SmallTrainer(tmp_path / "log")
    trainer.room = 0
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        trainer.train(job(tmp_path, micro_batch_size=2))


@pytest.mark.parametrize("objective", ["clipped", "likelihood"])
def test_an_update_whose_loss_depends_on_its_micro_batches_keeps_them(tmp_path, objective):
    trainer = SmallTrainer(tmp_path / "log")
    settings = {"loss_type": "bnpo", "beta": 0.0, "objective": objective}
    with pytest.raises(RuntimeError, match=r"lower update\.micro_batch_size") as raised:
        trainer.train(job(tmp_path, micro_batch_size=16, **settings))
    assert raised.value.__cause__ is trainer.problem


def test_pairs_are_averaged_whatever_the_micro_batches(tmp_path):
    trainer = SmallTrainer(tmp_path / "log")
    settings: dict[str, Any] = {"loss_type": "bnpo", "beta": 0.1, "objective": "preference"}
    done: Any = trainer.train(job(tmp_path, micro_batch_size=16, **settings))
    assert done.settings.micro_batch_size == 4


def test_another_failure_is_not_tried_again(tmp_path):
    trainer = SmallTrainer(tmp_path / "log")
    trainer.problem = RuntimeError("a bad row")
    with pytest.raises(RuntimeError, match="a bad row"):
        trainer.train(job(tmp_path, micro_batch_size=16))


class Child:
    """An engine process that has room for `room` conversations at once."""

    room = 4
    found_no_node = False
    started: ClassVar[list[int]] = []

    def __init__(self, config: EngineConfig, number: int, log_dir: Path):
        self.config = config
        self.log_file = log_dir / "engine.log"
        Child.started.append(config.max_num_seqs)

    def close(self) -> None:
        return


def test_an_engine_out_of_memory_starts_again_with_fewer_conversations_at_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(pool, "Child", Child)
    fleet = Fleet(EngineConfig(model="m", max_model_len=8, max_num_seqs=16), 1, tmp_path)
    fleet.start()
    for _ in range(4):
        fleet._pool._restart(0, f"OutOfMemoryError('{CUDA}')", again=True)
    assert Child.started == [16, 8, 4, 2, 1]
    with pytest.raises(EngineDied, match="died twice"):
        fleet._pool._restart(0, f"OutOfMemoryError('{CUDA}')", again=True)
