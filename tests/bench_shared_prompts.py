"""What a prompt costs that eight answers share: `python -m tests.bench_shared_prompts`.

Generation computes it once (vLLM's prefix cache). The update computes it in every row, as TRL's trainer lays rows out;
the lines say what that costs against answers alone, and against a prototype that computes the prompt once a group.
CPU seconds of one thread, a tiny model, 2,048 + 128 tokens in place of 16K + 1K. Lines go to data/bench/bench.jsonl.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}

import numpy as np

from tests.bench import BENCH, MODEL, line

G, PROMPT, ANSWER, VOCAB = 8, 2048, 128, 600


def long_model(folder: Path) -> Path:
    """The micro model's shape with random weights and a context of 4,096."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig.from_pretrained(MODEL)
    config.max_position_embeddings = 4096
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder)
    return folder


def generation(folder: Path) -> list[dict[str, Any]]:
    """Eight answers to one prompt, against eight prompts that differ in their first token."""
    from tasks.fleet import CPU_ENVIRONMENT, ENVIRONMENT

    os.environ |= ENVIRONMENT | CPU_ENVIRONMENT
    sys.modules.pop("vllm", None)  # `tests.bench` keeps TRL from importing it
    from tasks.engine import EngineConfig, Policy, Sampling, open_engine

    config = EngineConfig(
        model=str(folder), dtype="float32", max_model_len=PROMPT + 2 * ANSWER, max_num_seqs=G, kv_cache_bytes=1 << 28
    )
    engine: Any = open_engine(config)
    policy, rng = Policy(id="p", weights=str(folder), content_hash="0"), np.random.default_rng(0)
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
        return rng.integers(5, VOCAB, PROMPT).tolist()

    answer([fresh()])
    one = fresh()
    shared, unshared = answer([one] * G), answer([fresh() for _ in range(G)])
    engine.close()
    peer = "8 prompts that share nothing"
    return [
        line("generate_8_answers_shared_prompt", peer, shared[0], unshared[0], "CPU-s"),
        line("generate_8_answers_prompt_tokens_computed", peer, shared[1], unshared[1], "tokens"),
    ]


def update(folder: Path) -> list[dict[str, Any]]:
    """One GRPO step on eight answers of 128 tokens behind one prompt of 2,048: by the trainer, by the trainer without
    the prompt, and by a prototype that computes the prompt once."""
    rng = np.random.default_rng(0)
    prompt, answers = rng.integers(5, VOCAB, PROMPT).tolist(), rng.integers(5, VOCAB, (G, ANSWER)).tolist()
    advantages = rng.normal(size=G).tolist()
    whole, bare = train_s(folder, prompt, answers, advantages), train_s(folder, prompt[:1], answers, advantages)
    once = once_s(folder, prompt, answers, advantages)
    scale, unit = 1e3 / (G * ANSWER), "CPU-s/1k trained"
    peers = {"answers_only": ("8 x 128 tokens, no prompt", bare), "prompt_once": ("prompt once, plain torch", once)}
    return [
        line(f"update_8x2k_prompt_vs_{name}", peer, whole * scale, cost * scale, unit)
        for name, (peer, cost) in peers.items()
    ]


def train_s(folder: Path, prompt: list[int], answers: list[list[int]], advantages: list[float]) -> float:
    """CPU seconds of the optimizer step itself, loading left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.datums import read_datums
    from tasks.grpo import GRPOSettings, UpdateJob
    from tasks.trainer import build_trainer
    from warehouse.schemas import BATCHES

    rows = [
        {
            "rollout_id": str(i),
            "datum": 0,
            "prompt_token_ids": prompt,
            "completion_token_ids": answer,
            "loss_mask": [1] * ANSWER,
            "logprobs": [-3.0] * ANSWER,
            "advantage": advantage,
        }
        for i, (answer, advantage) in enumerate(zip(answers, advantages, strict=True))
    ]
    settings = GRPOSettings(beta=0.0, micro_batch_size=1, on_policy=True)
    with tempfile.TemporaryDirectory() as out:
        batch = Path(out) / "batch.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=BATCHES.arrow), batch)

        def work(i: int) -> float:
            job = UpdateJob(batch=batch, policy=folder, reference=folder, out=Path(out) / str(i), settings=settings)
            trainer = build_trainer(job, read_datums(batch))
            began = time.process_time()
            trainer.train()
            return time.process_time() - began

        return least(work)


def once_s(folder: Path, prompt: list[int], answers: list[list[int]], advantages: list[float]) -> float:
    """One row: the prompt, then every answer as a branch that sees the prompt and itself (a four-dimensional mask)."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.tensor([prompt + [t for answer in answers for t in answer]])
    branch = torch.tensor([0] * PROMPT + [i + 1 for i in range(G) for _ in range(ANSWER)])
    positions = torch.tensor([[*range(PROMPT), *(PROMPT + t for _ in range(G) for t in range(ANSWER))]])
    causal = torch.ones(len(branch), len(branch)).tril().bool()
    sees = causal & ((branch[None] == 0) | (branch[None] == branch[:, None]))
    mask = torch.zeros(1, 1, *sees.shape).masked_fill_(~sees, torch.finfo(torch.float32).min)
    # Each answer's first token is predicted at the prompt's end.
    places = torch.tensor(
        [PROMPT - 1 if t == 0 else PROMPT + i * ANSWER + t - 1 for i in range(G) for t in range(ANSWER)]
    )
    weight = torch.tensor(advantages).repeat_interleave(ANSWER) / (G * ANSWER)

    def step(_: int) -> float:
        began = time.process_time()
        hidden = model.model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False)[0]
        logits = model.lm_head(hidden[0, places])
        logps = torch.log_softmax(logits, -1)[range(G * ANSWER), ids[0, PROMPT:]]
        optimizer.zero_grad()
        (-(logps - logps.detach()).exp() * weight).sum().backward()
        optimizer.step()
        return time.process_time() - began

    return least(step)


def least(work: Callable[[int], float], repeats: int = 3) -> float:
    work(0)
    return min(work(i + 1) for i in range(repeats))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = long_model(Path(folder) / "model")
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # TRL and vLLM do not share a process well
            generated = apart.submit(generation, model).result()
        rows = [*generated, *update(model)]
    with BENCH.open("a") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            print(
                f"{row['name']:44} ours {row['ours']:>10} peer {row['peer']:>10} {row['unit']:18} ratio {row['ratio']}"
            )


if __name__ == "__main__":
    main()
