"""The cost of a prompt that eight answers share: `python -m tests.bench.shared_prompts`.

Generation computes the prompt once (vLLM's prefix cache). The update computes it in every row, as
TRL's trainer lays rows out, unless it shares prompts. The lines compare sharing with the prompt in
every row and with answers alone, in CPU-seconds of one thread and a tiny model, on 2,048 + 128
tokens; `--prompt 16384 --answer 1024` sets the paper's lengths (minutes), `--shape english --layers
4` a cut of SmolLM2's shape. Appends lines to data/bench/bench.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}

import numpy as np

from tests.bench.pipeline import BENCH, MODEL, line

G = 8
VOCAB = 600
NAMES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)
SHAPES = {  # differences from the micro model's shape
    "micro": {},
    "small": {**dict(zip(NAMES, (384, 1024, 6, 6, 2), strict=True)), "head_dim": 64},
    "english": {
        **dict(zip(NAMES, (576, 1536, 30, 9, 3), strict=True)),
        "head_dim": 64,
        "vocab_size": 49_152,
    },
}


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompt and of each answer, how many steps are timed after a warm-up step, and
    with which model: its shape, and how many of its layers (0: all)."""

    prompt: int
    answer: int
    repeats: int
    shape: str = "micro"
    layers: int = 0

    def __str__(self) -> str:
        some = f", {self.layers} layers" if self.layers else ""
        return f"{G} x ({self.prompt:,} + {self.answer:,}), {self.shape}{some}"


def length_options() -> argparse.ArgumentParser:
    """The fields of `Lengths` as options, for the parsers of benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--prompt", type=int, default=2048, help="tokens")
    parser.add_argument("--answer", type=int, default=128, help="tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES, default="micro")
    parser.add_argument(
        "--layers",
        type=int,
        default=0,
        help="fewer than the shape has: a step is shorter, in proportion",
    )
    return parser


def long_model(folder: Path, lengths: Lengths) -> Path:
    """A model of random weights whose context is long enough, in the micro model's shape, one of
    ten million parameters, or SmolLM2's of 135 million."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig.from_pretrained(MODEL)
    config.update(
        SHAPES[lengths.shape] | ({"num_hidden_layers": lengths.layers} if lengths.layers else {})
    )
    config.max_position_embeddings = lengths.prompt + 2 * lengths.answer
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder)
    return folder


def generation(folder: Path, lengths: Lengths) -> list[dict[str, Any]]:
    """Eight answers to one prompt, against eight prompts that differ in their first token."""
    from tasks.engines.child import CPU_ENVIRONMENT, ENVIRONMENT

    os.environ |= ENVIRONMENT | CPU_ENVIRONMENT
    sys.modules.pop("vllm", None)  # `tests.bench.pipeline` keeps TRL from importing it
    from tasks.engines.fleet_child import open_engine
    from tasks.models.engine import EngineConfig, Policy, Sampling

    config = EngineConfig(
        model=str(folder),
        dtype="float32",
        max_model_len=lengths.prompt + lengths.answer,
        max_num_seqs=G,
        kv_cache_bytes=1 << 30,
    )
    engine: Any = open_engine(config)
    policy = Policy(id="p", weights=str(folder), content_hash="0")
    rng = np.random.default_rng(0)
    engine.use(policy)
    cached: list[int] = []
    finish = engine._completion

    def count(output: Any) -> Any:
        cached.append(output.num_cached_tokens or 0)
        return finish(output)

    engine._completion = count

    def answer(prompts: list[list[int]]) -> tuple[float, int]:
        cached.clear()
        began = time.process_time()
        for i, prompt in enumerate(prompts):
            engine.submit(i, prompt, Sampling(max_tokens=8), i, policy)
        while engine.poll():
            pass
        return time.process_time() - began, sum(map(len, prompts)) - sum(cached)

    def fresh() -> list[int]:
        return rng.integers(5, VOCAB, lengths.prompt).tolist()

    answer([fresh()])
    one = fresh()
    shared = answer([one] * G)
    unshared = answer([fresh() for _ in range(G)])
    engine.close()
    peer = f"8 prompts of {lengths.prompt:,} tokens that share nothing"
    return [
        line("generate_8_answers_shared_prompt", peer, shared[0], unshared[0], "CPU-s"),
        line("generate_8_answers_prompt_tokens_computed", peer, shared[1], unshared[1], "tokens"),
    ]


def update(folder: Path, lengths: Lengths) -> list[dict[str, Any]]:
    """One GRPO step on eight answers to one prompt, with the prompt computed once
    (`shared_prompt_tokens`), computed in every row (as by TRL's own trainer), and left out."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(5, VOCAB, lengths.prompt).tolist()
    answers = rng.integers(5, VOCAB, (G, lengths.answer)).tolist()
    advantages = rng.normal(size=G).tolist()
    group = answers, advantages, lengths.repeats
    once = train_s(folder, prompt, *group, shared_prompt_tokens=lengths.prompt + G * lengths.answer)
    # each row is a micro-batch
    alone = train_s(folder, prompt, answers[:1], advantages[:1], lengths.repeats)
    costs = {
        "answers_only": ("the answers, no prompt", train_s(folder, prompt[:1], *group)),
        "every_row": ("the prompt in every row (eight times one row)", G * alone),
    }
    scale = 1e3 / (G * lengths.answer)
    name = f"update_8x{lengths.prompt // 1024}k_prompt"
    unit = "CPU-s/1k trained"
    return [
        line(f"{name}_once_vs_{other}", f"{lengths}: {peer}", once * scale, cost * scale, unit)
        for other, (peer, cost) in costs.items()
    ]


def train_s(
    folder: Path,
    prompt: list[int],
    answers: list[list[int]],
    advantages: list[float],
    repeats: int,
    **changes: int,
) -> float:
    """CPU-seconds of the optimizer step alone, without loading."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.training.datums import read_datums
    from tasks.training.grpo import GRPOSettings, UpdateJob
    from tasks.training.trainer import build_trainer
    from warehouse.schemas import BATCHES

    rows = [
        {
            "rollout_id": str(i),
            "datum": 0,
            "prompt_token_ids": prompt,
            "completion_token_ids": answer,
            "loss_mask": [1] * len(answer),
            "logprobs": [-3.0] * len(answer),
            "advantage": advantage,
        }
        for i, (answer, advantage) in enumerate(zip(answers, advantages, strict=True))
    ]
    settings = GRPOSettings(beta=0.0, micro_batch_size=1, on_policy=True, **changes)
    with tempfile.TemporaryDirectory() as out:
        batch = Path(out) / "batch.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=BATCHES.arrow), batch)

        def work(i: int) -> float:
            job = UpdateJob(
                batch=batch,
                policy=folder,
                reference=folder,
                out=Path(out) / str(i),
                settings=settings,
            )
            trainer = build_trainer(job, read_datums(batch))
            began = time.process_time()
            trainer.train()
            return time.process_time() - began

        return least(work, repeats)


def least(work: Callable[[int], float], repeats: int) -> float:
    work(0)
    return min(work(i + 1) for i in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, parents=[length_options()])
    parser.add_argument("--update-only", action="store_true", help="skip generation")
    given = vars(parser.parse_args())
    update_only = given.pop("update_only")
    lengths = Lengths(**given)
    with tempfile.TemporaryDirectory() as folder:
        model = long_model(Path(folder) / "model", lengths)
        # TRL and vLLM do not share a process well
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            generated = [] if update_only else apart.submit(generation, model, lengths).result()
        rows = [*generated, *update(model, lengths)]
    with BENCH.open("a") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            print(
                f"{row['name']:44} ours {row['ours']:>10} peer {row['peer']:>10} {row['unit']:18}"
                f" ratio {row['ratio']}"
            )


if __name__ == "__main__":
    main()
