"""An update with shared prompts against TRL's own GRPOTrainer on the same rows: `python -m
tests.bench.trl_trainer`.

Eight answers to one prompt, 2,048 + 128 tokens; `--prompt 16384 --answer 1024` sets the paper's
lengths. TRL generates and scores nothing: its trainer gets the rows instead. Each trainer runs in
its own process with one thread; unless both make the same update, the benchmark fails. Appends
lines to data/bench/bench.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.bench.pipeline import BENCH, line
from tests.bench.shared_prompts import VOCAB, G, Lengths, length_options, long_model

PEER = "TRL's GRPOTrainer, a prompt in every row"


@dataclass(frozen=True)
class Cost:
    """The cost of one optimizer step: CPU-seconds without loading, the process's peak MB, and
    the gradient's norm."""

    cpu_s: float
    peak_mb: float
    grad_norm: float


def rows(lengths: Lengths) -> tuple[list[int], list[list[int]], list[float]]:
    """A prompt, its answers, and their advantages."""
    import numpy as np

    rng = np.random.default_rng(0)
    prompt = rng.integers(5, VOCAB, lengths.prompt).tolist()
    return prompt, rng.integers(5, VOCAB, (G, lengths.answer)).tolist(), rng.normal(size=G).tolist()


def ours(folder: Path, lengths: Lengths) -> Cost:
    """Our trainer, which computes the prompt once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.training.datums import read_datums
    from tasks.training.grpo import GRPOSettings, UpdateJob
    from tasks.training.trainer import build_trainer
    from warehouse.schemas import BATCHES

    prompt, answers, advantages = rows(lengths)
    known = {"datum": 0, "prompt_token_ids": prompt, "loss_mask": [1] * lengths.answer}
    table = [
        {
            **known,
            "rollout_id": str(i),
            "completion_token_ids": a,
            "logprobs": [-3.0] * lengths.answer,
            "advantage": x,
        }
        for i, (a, x) in enumerate(zip(answers, advantages, strict=True))
    ]
    shared = lengths.prompt + G * lengths.answer
    settings = GRPOSettings(
        beta=0.0, micro_batch_size=1, on_policy=True, shared_prompt_tokens=shared
    )
    with tempfile.TemporaryDirectory() as out:
        batch = Path(out) / "batch.parquet"
        pq.write_table(pa.Table.from_pylist(table, schema=BATCHES.arrow), batch)

        def make(number: int) -> Any:
            job = UpdateJob(
                batch=batch,
                policy=folder,
                reference=folder,
                out=Path(out) / str(number),
                settings=settings,
            )
            return build_trainer(job, read_datums(batch))

        return _cost(make, lambda trainer: trainer.steps[-1].grad_norm, lengths.repeats)


def theirs(folder: Path, lengths: Lengths) -> Cost:
    """TRL as installed: none of the project's changes to it are imported."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    prompt, answers, advantages = rows(lengths)

    class GivenRows(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            prompts = torch.tensor([prompt] * G)
            completions = torch.tensor(answers)
            return {
                "prompt_ids": prompts,
                "prompt_mask": torch.ones_like(prompts),
                "completion_ids": completions,
                "completion_mask": torch.ones_like(completions),
                "advantages": torch.tensor(advantages, dtype=torch.float32),
                "num_items_in_batch": torch.tensor(float(completions.numel())),
            }

    def make(number: int) -> Any:
        args = GRPOConfig(
            output_dir=str(folder / f"trl-{number}"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            beta=0.0,
            learning_rate=1e-6,
            max_steps=1,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=G,
            num_generations=G,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
        )
        return GivenRows(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
            reward_funcs=lambda **_: [],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""] * G}),
            processing_class=AutoTokenizer.from_pretrained(folder),
        )

    return _cost(make, lambda trainer: trainer.state.log_history[0]["grad_norm"], lengths.repeats)


def _cost(make: Callable[[int], Any], norm_of: Callable[[Any], float], repeats: int) -> Cost:
    """The least of several steps; with more than one, after a warm-up step."""
    times = []
    norm = math.nan
    for number in range(repeats + (repeats > 1)):
        trainer = make(number)
        began = time.process_time()
        trainer.train()
        times.append(time.process_time() - began)
        norm = norm_of(trainer)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(min(times), peak_mb, norm)


def compare(folder: Path, lengths: Lengths) -> list[dict[str, Any]]:
    found = []
    for trainer in (ours, theirs):
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            found.append(apart.submit(trainer, folder, lengths).result())
    own, peer = found
    assert math.isclose(own.grad_norm, peer.grad_norm, rel_tol=1e-3), (
        f"other gradients: {own.grad_norm}, {peer.grad_norm}"
    )
    name = f"update_8x{lengths.prompt // 1024}k_vs_trl"
    about = f"{lengths}: {PEER}"
    scale = 1e3 / (G * lengths.answer)
    return [
        line(name, about, own.cpu_s * scale, peer.cpu_s * scale, "CPU-s/1k trained"),
        line(f"{name}_peak", about, own.peak_mb, peer.peak_mb, "MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, parents=[length_options()])
    lengths = Lengths(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        found = compare(long_model(Path(folder) / "model", lengths), lengths)
    with BENCH.open("a") as file:
        for row in found:
            file.write(json.dumps(row) + "\n")
            print(
                f"{row['name']:32} ours {row['ours']:>10} peer {row['peer']:>10} {row['unit']:18}"
                f" ratio {row['ratio']}"
            )


if __name__ == "__main__":
    main()
