"""The update stage: which models it passes to the trainer, and what it writes."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.models.engine import Policy
from tasks.training.environment import own_variables
from tasks.training.group import Group, LocalMember
from tasks.training.grpo import GRPOSettings, UpdateJob, UpdateResult
from tasks.update import Trainer, update, updated_policy
from tests.support.rows import publish, row
from warehouse.schemas import BATCHES

PROJECT = Path(__file__).resolve().parents[2]
BASE = PROJECT / "data" / "micro" / "base"
HUB_NAME = "lab/micro-base"
DATUM = {
    "rollout_id": "r",
    "prompt_token_ids": [5, 6, 7],
    "completion_token_ids": [8, 9],
    "loss_mask": [1, 1],
    "logprobs": [-0.5, -0.5],
    "advantage": 1.0,
}


class InThisProcess:
    """A trainer that runs in this process."""

    def train(self, job: UpdateJob) -> UpdateResult:
        from tasks.training.trainer import train

        return train(job)


@pytest.fixture
def hub_model(tmp_path, monkeypatch) -> str:
    """A model known by its hub name: it is in the hub's cache, and the hub cannot be reached."""
    kept = tmp_path / "hub" / "models--lab--micro-base"
    shutil.copytree(BASE, kept / "snapshots" / ("a" * 40))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return HUB_NAME


def test_a_model_named_as_on_the_hub_is_trained_from_its_cache(place, hub_model):
    policy = Policy(id=hub_model, weights=hub_model, content_hash="0")
    made = update(
        place,
        publish(place, "batches", row("batches", **DATUM)),
        policy=policy,
        reference=policy,
        optimizer_state=None,
        settings=GRPOSettings(learning_rate=1e-3, beta=0.1),
        role="solver",
        trainer=InThisProcess(),
    )
    trained, _ = updated_policy(made)
    assert (Path(trained.weights) / "tokenizer.json").read_bytes() == (
        BASE / "tokenizer.json"
    ).read_bytes()
    assert (Path(trained.weights) / "model.safetensors").read_bytes() != (
        BASE / "model.safetensors"
    ).read_bytes()


def batch_file(folder: Path, num_rows: int = 1) -> Path:
    rows = [row("batches", **DATUM)] * num_rows
    pq.write_table(pa.Table.from_pylist(rows, schema=BATCHES.arrow), folder / "batch.parquet")
    return folder / "batch.parquet"


@pytest.mark.needs("trl")
@pytest.mark.parametrize("resident", [True, False])
def test_a_trainer_stays_for_the_next_update_if_it_is_resident(tmp_path, resident):
    trainer = Trainer(tmp_path / "log", resident=resident)
    trainer.group.start()
    [member] = trainer.group.members
    assert isinstance(member, LocalMember)
    with pytest.raises(ValueError, match="no such folder"):
        trainer.train(
            UpdateJob(
                batch=batch_file(tmp_path), policy=tmp_path / "none", reference=BASE, out=tmp_path
            )
        )
    assert (member.process.poll() is None) == resident
    trainer.close()
    assert member.process.poll() is not None


def test_a_trainer_of_one_process_sees_one_gpu_that_of_the_first_engine(tmp_path, monkeypatch):
    """TRL refuses several GPUs: Trainer would wrap the model in DataParallel."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert Group(tmp_path / "log", 1, "cuda", 1).gpus() == ["4"]
    assert own_variables("cuda", 1, 1, ["4"])["CUDA_VISIBLE_DEVICES"] == "4"
    assert Group(tmp_path / "log", 2, "cuda", 1).gpus() is None
    assert "CUDA_VISIBLE_DEVICES" not in own_variables("cuda", 1, 2, None)


def test_the_allocator_of_a_gpu_trainer_can_grow_its_blocks_unless_told_otherwise(monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert own_variables("cuda", 1, 2)["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")
    assert own_variables("cuda", 1, 2)["PYTORCH_ALLOC_CONF"] == "expandable_segments:False"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")
    assert own_variables("cuda", 1, 2)["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:512"
    assert "PYTORCH_ALLOC_CONF" not in own_variables("cpu", 1, 1)


@pytest.mark.slow
def test_a_resident_trainer_writes_each_state_behind_its_update_and_goes_on_from_memory(
    store, tmp_path
):
    """Two updates, the first state superseded; then the second again, from disk, by a new
    trainer."""
    from tasks.training.kept_state import GOES_ON

    log = tmp_path / "log"
    base = Policy(id="base", weights=str(BASE), content_hash="0")
    settings = GRPOSettings(learning_rate=1e-3, beta=0.0)

    def chain(trainer: Trainer) -> list[str]:
        now = base
        state = None
        hashes = []
        for number in (1, 2):
            place = store.run("r").iteration(1).phase("solver").step(number)
            batch = publish(place, "batches", row("batches", **DATUM))
            start = {
                "policy": now,
                "reference": base,
                "optimizer_state": state,
                "settings": settings,
            }
            made = update(place, batch, role="solver", trainer=trainer, **start)
            now, state = updated_policy(made)
            hashes.append(now.content_hash)
        store.behind.wait()
        trainer.close()
        return hashes

    first = chain(Trainer(log))
    tables = [store.get(f"r/iter-001/solver/step-00{number}/updates") for number in (1, 2)]
    assert log.read_text().count(GOES_ON) == 1
    assert all(not table.awaits and not list(table.problems(thorough=True)) for table in tables)
    assert all("files/update/optimizer/optimizer.pt" in table.contents for table in tables)
    shutil.rmtree(tables[1].folder)
    assert chain(Trainer(log)) == first and log.read_text().count(GOES_ON) == 1


TRAINING = """
import sys
from pathlib import Path
from tasks.training.grpo import UpdateJob
from tasks.update import Trainer

job = UpdateJob.model_validate_json(Path(sys.argv[1]).read_text())
Trainer(Path(sys.argv[1]).with_suffix(".log"), num_processes=2).train(job)
"""


@pytest.mark.slow
def test_the_processes_of_a_trainer_end_with_the_flow_that_was_killed(tmp_path):
    settings = GRPOSettings(optimizer_steps=5_000, micro_batch_size=1)
    batch = batch_file(tmp_path, num_rows=10_000)
    job = UpdateJob(
        batch=batch, policy=BASE, reference=BASE, out=tmp_path / "out", settings=settings
    )
    (tmp_path / "job.json").write_text(job.model_dump_json())
    flow = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(tmp_path / "job.json")], cwd=PROJECT
    )
    family = psutil.Process(flow.pid)
    while (
        sum(
            "tasks.training.member" in " ".join(p.cmdline())
            for p in family.children(recursive=True)
        )
        != 2
    ):
        assert flow.poll() is None, (tmp_path / "job.log").read_text()
        time.sleep(0.2)
    time.sleep(3)  # for Python to begin
    children = family.children(recursive=True)
    flow.kill()
    flow.wait()
    _, alive = psutil.wait_procs(children, timeout=600)
    for process in alive:
        process.kill()
    assert not alive
