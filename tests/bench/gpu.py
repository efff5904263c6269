"""The trainer and the engine on a GPU, with random weights of a published shape: `python -m
tests.bench.gpu Qwen/Qwen3-8B`.

Nothing is downloaded, so it runs where no hub can be reached. An update comes first, in a process
of its own: of an adapter, or of all weights with `--full`. Then an engine loads the base, decodes
with and without what was trained, sleeps, wakes, and scores the rows that the trainer scored.
Prints every number as soon as it is known and appends it to `--out`, by default
data/bench/gpu.jsonl. `selfplay plan` computes the same numbers. Takes five to ten minutes, most of
them to start an engine for the first time; `--layers 6` is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from flows.plan.shapes import KNOWN
from tasks.engines.child import ENVIRONMENT

WORDS = 64  # the tokenizer's vocabulary; the model's is that of its shape
GIB = 1 << 30
BATCHES = (1, 16, 64, 128, 256)  # conversations at once
DECODED = 256  # tokens of each, after a prompt of PROMPT tokens
PROMPT = 600
CONTEXT = 24576


@dataclass(frozen=True)
class Plan:
    """What is measured, where models are written, and where the numbers go."""

    shape: str
    folder: Path
    out: Path
    lengths: tuple[int, ...]
    is_full: bool
    layers: int | None

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def how(self) -> str:
        return "full" if self.is_full else "lora"

    def note(self, what: str, value: float, unit: str) -> None:
        """Print a number and append it to the file."""
        import torch

        row = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "shape": self.shape,
            "layers": self.layers,
            "how": self.how,
            "what": what,
            "value": round(value, 4),
            "unit": unit,
        }
        print(f"{what:44} {value:12.3f} {unit}", flush=True)
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long the block takes, and the memory of the GPU in use after it."""
        import torch

        torch.cuda.synchronize()
        begun = time.perf_counter()
        yield
        torch.cuda.synchronize()
        self.note(what, time.perf_counter() - begun, "s")
        free, total = torch.cuda.mem_get_info()
        self.note(f"{what}: memory after", (total - free) / GIB, "GiB")


def make_model(plan: Plan) -> None:
    """Random weights in bfloat16 and a tokenizer of a few words, as an HF folder."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

    known = tomllib.loads(KNOWN.read_text())
    values = known[plan.shape]
    if "same_as" in values:
        values = known[values["same_as"]] | values
        del values["same_as"]
    values = dict(values)
    if plan.layers:
        values["num_hidden_layers"] = plan.layers
    config = CONFIG_MAPPING[values.pop("model_type")](**values)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(plan.model)
    vocabulary = {f"t{i}": i for i in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="t0", eos_token="t1"
    ).save_pretrained(plan.model)


def update(plan: Plan) -> dict[str, Any]:
    """One update with an optimizer step of two rows for every length.

    Returns the rows that the trainer scored afterwards, with their log-probabilities.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.training.grpo import GRPOSettings, LoRASettings, UpdateJob
    from tasks.training.trainer import train
    from warehouse.schemas import BATCHES as SCHEMA

    rng = np.random.default_rng(0)
    rows = []
    for length in (plan.lengths[0], *plan.lengths):  # the first step compiles
        for advantage in (1.0, -1.0):
            prompt = length // 4
            rows.append(
                {
                    "datum": len(rows),
                    "rollout_id": str(len(rows)),
                    "prompt_token_ids": rng.integers(2, WORDS, prompt).tolist(),
                    "completion_token_ids": rng.integers(2, WORDS, length - prompt).tolist(),
                    "loss_mask": [1] * (length - prompt),
                    "logprobs": [-12.0] * (length - prompt),
                    "advantage": advantage,
                }
            )
    batch = plan.folder / f"batch-{plan.how}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA.arrow), batch)
    settings = GRPOSettings(
        dtype="bfloat16",
        export_dtype="bfloat16",
        gradient_checkpointing=True,
        micro_batch_size=1,
        beta=0.0 if plan.is_full else 1e-3,
        optimizer_steps=len(rows) // 2,
        lora=None if plan.is_full else LoRASettings(rank=64, alpha=128),
    )
    job = UpdateJob(
        batch=batch,
        policy=plan.model,
        reference=plan.model,
        out=plan.folder / f"updated-{plan.how}",
        settings=settings,
    )
    begun = time.perf_counter()
    result = train(job)
    plan.note("update: whole", time.perf_counter() - begun, "s")
    for length, step in zip(plan.lengths, result.steps[1:], strict=True):
        plan.note(f"update: a row of {length}", step.duration_s / 2, "s")
        plan.note(f"update: peak at {length}", (step.peak_bytes or 0) / GIB, "GiB")
    import torch

    plan.note("update: reserved", torch.cuda.memory_reserved() / GIB, "GiB")
    probed = [
        {
            "prompt": rows[each.row]["prompt_token_ids"],
            "reply": rows[each.row]["completion_token_ids"],
            "logprob": each.logprob,
        }
        for each in result.probed
    ]
    return {"policy": str(result.policy), "probed": probed}


def serve(plan: Plan, trained: dict[str, Any]) -> None:
    """Start an engine; decode, sleep, wake, take the trained policy, and score rows."""
    import numpy as np

    from tasks.engines.fleet_child import open_engine
    from tasks.models.engine import EngineConfig, Policy

    config = EngineConfig(
        model=str(plan.model),
        dtype="bfloat16",
        max_model_len=CONTEXT,
        device="cuda",
        gpu_memory_utilization=0.85,
        max_num_seqs=max(BATCHES),
        max_lora_rank=0 if plan.is_full else 64,
    )
    base = Policy(id="base", weights=str(plan.model), content_hash="base")
    tuned = Policy(id="tuned", weights=trained["policy"], content_hash="tuned")
    if not plan.is_full:
        tuned = Policy(
            id="tuned", weights=str(plan.model), adapter=trained["policy"], content_hash="tuned"
        )
    with plan.timed("engine: start"):
        engine: Any = open_engine(config)
    vllm_config = engine._engine.vllm_config
    print("model runner V2:", getattr(vllm_config, "use_v2_model_runner", "?"), flush=True)
    cache = vllm_config.cache_config
    if cache.num_gpu_blocks:
        plan.note("engine: cache", cache.num_gpu_blocks * cache.block_size, "tokens")
    engine.use(base)
    replies = []
    for number in BATCHES:
        replies = decode(plan, engine, base, number, "base")
    agreement = compare_scores(engine, base, replies[:16])
    plan.note("engine: sampled and scored again, mean", float(np.mean(agreement)), "nats a token")
    plan.note("engine: sampled and scored again, most", float(np.max(agreement)), "nats a token")
    for number in (1, 2, 3):
        with plan.timed(f"engine: sleep {number}"):
            engine.sleep()
        with plan.timed(f"engine: wake {number}"):
            engine.wake()
    again = compare_scores(engine, base, replies[:16])
    plan.note("engine: scores after waking, most", float(np.max(again)), "nats a token")
    with plan.timed("engine: take the trained policy"):
        engine.use(tuned)
    for number in (64, 256):
        decode(plan, engine, tuned, number, "trained")
    for key, row in enumerate(trained["probed"]):
        engine.submit_reply(key, row["prompt"], row["reply"], tuned)
    for key, completion in drain(engine, len(trained["probed"])):
        row = trained["probed"][key]
        assert completion.error is None, completion.error
        off = abs(sum(completion.logprobs) - row["logprob"]) / len(row["reply"])
        plan.note(f"engine against trainer, {len(row['reply'])} tokens", off, "nats a token")
    engine.close()


def decode(plan: Plan, engine: Any, policy: Any, number: int, name: str) -> list[Any]:
    """Sample `number` replies at once, twice; note the second. Returns (prompt, completion)."""
    import numpy as np

    from tasks.models.engine import Sampling

    rng = np.random.default_rng(number)
    sampling = Sampling(max_tokens=DECODED, temperature=1.0)
    made: list[Any] = []
    for repeat in range(2):
        prompts = rng.integers(2, WORDS, (number, PROMPT)).tolist()
        begun = time.perf_counter()
        for key, prompt in enumerate(prompts):
            engine.submit(key, prompt, sampling, repeat * number + key, policy)
        made = [(prompts[key], completion) for key, completion in drain(engine, number)]
        seconds = time.perf_counter() - begun
    tokens = sum(len(completion.token_ids) for _, completion in made)
    plan.note(f"engine: {name}, {number} at once", tokens / seconds, "tokens/s")
    return made


def drain(engine: Any, number: int) -> list[Any]:
    """Wait for `number` replies."""
    done: list[Any] = []
    while len(done) < number:
        done += engine.poll()
    return done


def compare_scores(engine: Any, policy: Any, replies: list[Any]) -> Any:
    """Absolute differences per token between sampled log-probabilities and a second scoring."""
    import numpy as np

    for key, (prompt, completion) in enumerate(replies):
        engine.submit_reply(key, prompt, completion.token_ids, policy)
    differences = []
    for key, scored in drain(engine, len(replies)):
        assert scored.error is None, scored.error
        sampled = np.array(replies[key][1].logprobs)
        differences.append(np.abs(sampled - np.array(scored.logprobs)))
    return np.concatenate(differences)


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` in a separate process, so that nothing of it stays on the GPU."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", help="a name in flows/plan/shapes.toml")
    parser.add_argument("--folder", type=Path, default=Path("data/models/random"))
    parser.add_argument("--out", type=Path, default=Path("data/bench/gpu.jsonl"))
    parser.add_argument("--lengths", default="1024,2048,4096,8192,16384", help="of rows, in tokens")
    parser.add_argument("--full", action="store_true", help="train all weights, not an adapter")
    parser.add_argument("--layers", type=int, help="of the model; by default those of its shape")
    given = parser.parse_args()
    lengths = tuple(int(length) for length in given.lengths.split(","))
    plan = Plan(given.shape, given.folder, given.out, lengths, given.full, given.layers)
    plan.folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(ENVIRONMENT | {"HF_HUB_OFFLINE": "1"})
    if not plan.model.exists():
        apart(make_model, plan)
    trained = apart(update, plan)
    apart(serve, plan, trained)


if __name__ == "__main__":
    main()
