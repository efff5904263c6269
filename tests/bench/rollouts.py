"""Rollouts against raw vLLM on the same prompts: `python -m tests.bench.rollouts [--model FOLDER]`.

Passages of Natural Questions, each with its question, are answered eight times. Ours is a fleet of
one engine, from prompts to rows: templates, the conversation loop, log-probabilities, the pipe
between two processes. The peer is `vllm.LLM.generate` with the same engine arguments, which gets
the finished token ids, has to sample as many tokens of each, and returns log-probabilities as
objects. CPU-seconds are those of all processes in the call itself, without loading, the least of
several calls. Appends a line to data/bench/bench.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from flows.runtime.store_root import SOURCE
from tasks.engines.child import CPU_ENVIRONMENT, ENVIRONMENT
from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, Policy, Sampling
from tasks.rollouts.dialogue import Dialogue
from tests.bench.pipeline import BENCH, line

G = 8
TOKENS = 32
REPEATS = 2
SAMPLING = Sampling(temperature=1.0, max_tokens=TOKENS)
Asked = tuple[list[int], int]  # a prompt's token ids, and the number of tokens sampled for it


def prompts(num: int) -> list[Any]:
    lines = (SOURCE / "data" / "english" / "nq.jsonl").read_text().splitlines()[:num]
    texts = [
        f"Text: {item['context']}\nQuestion: {item['question']}\nAnswer:"
        for item in map(json.loads, lines)
    ]
    about = [
        {"prompt_id": str(i), "messages": [{"role": "user", "content": text}]}
        for i, text in enumerate(texts)
    ]
    return [{**each, "role": "responder", "search_turns": None} for each in about]


def ours(config: EngineConfig, num: int) -> tuple[float, list[Asked]]:
    """CPU-seconds of all processes, and what was asked and sampled."""
    policy = Policy(id="base", weights=config.model, content_hash="0")
    dialogue = Dialogue(chat_template="none")
    times = []
    rows = []
    with tempfile.TemporaryDirectory() as logs, Fleet(config, 1, logs) as fleet:
        for seed in range(REPEATS + 1):  # the first call loads the engine
            began = sum(_cpu_s())
            rows = list(
                fleet.roll_out(prompts(num), policy, SAMPLING, dialogue, group_size=G, seed=seed)
            )
            times.append(sum(_cpu_s()) - began)
    turns = [row["turns"][0] for row in rows if row["turns"]]
    return min(times[1:]), [
        (turn["context_token_ids"], len(turn["sampled_token_ids"])) for turn in turns
    ]


def _cpu_s() -> Iterator[float]:
    yield time.process_time()
    for child in psutil.Process().children(recursive=True):
        used = child.cpu_times()
        yield used.user + used.system


def theirs(config: EngineConfig, asked: list[Asked]) -> float:
    """CPU-seconds of `generate` in a separate process."""
    sys.modules.pop("vllm", None)  # other benchmarks leave it out
    os.environ |= {**ENVIRONMENT, **CPU_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    import torch

    torch.set_num_threads(1)
    torch.cpu._init_amx()
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    from tasks.engines.vllm_args import engine_args

    llm = LLM.from_engine_args(engine_args(config))
    times = []
    given = [TokensPrompt(prompt_token_ids=ids) for ids, _ in asked]
    for call in range(REPEATS + 1):
        how = [
            SamplingParams(
                temperature=1.0,
                max_tokens=num,
                ignore_eos=True,
                seed=len(asked) * call + i,
                logprobs=0,
            )
            for i, (_, num) in enumerate(asked)
        ]
        began = time.process_time()
        found = llm.generate(given, how, use_tqdm=False)
        times.append(time.process_time() - began)
        assert [len(each.outputs[0].token_ids) for each in found] == [num for _, num in asked]
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=SOURCE / "data" / "micro" / "base")
    parser.add_argument("--prompts", type=int, default=64)
    args = parser.parse_args()
    config = EngineConfig(
        model=str(args.model.resolve()), max_model_len=1024, kv_cache_bytes=1 << 30
    )
    own, asked = ours(config, args.prompts)
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        peer = apart.submit(theirs, config, asked).result()
    scale = 1e3 / sum(num for _, num in asked)
    about = (
        f"vllm.LLM.generate, {args.prompts} prompts x {G} answers of at most {TOKENS} tokens,"
        f" {args.model.name}"
    )
    row = line("rollouts_vs_raw_vllm", about, own * scale, peer * scale, "CPU-s/1k sampled")
    with BENCH.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(
        f"{row['name']:32} ours {row['ours']:>10} peer {row['peer']:>10} {row['unit']:18} ratio"
        f" {row['ratio']}"
    )


if __name__ == "__main__":
    main()
