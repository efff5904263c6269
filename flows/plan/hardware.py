"""Published numbers of GPUs and hosts, and the share of them that programs reach.

Five shares were measured on one H100, with an adapter on the shape of Qwen3-8B
(data/bench/gpu.jsonl); every other share is an assumption. Lengths of conversations may be those of
an earlier run (`flows.plan.measured`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GIB = 1 << 30
MIN_DRIVER = 580  # NVIDIA's minimum for CUDA 13, which the locked torch and vLLM are built with


@dataclass(frozen=True)
class GPU:
    """One card. Bandwidths are those of its memory, of an all-gather over a node's links, and to
    pinned host memory."""

    name: str
    memory_gib: float  # what nvidia-smi shows
    tflops: float  # bfloat16, dense
    memory_gb_s: float
    link_gb_s: float
    host_gb_s: float


@dataclass(frozen=True)
class Nodes:
    """How many GPUs a node has, and the bandwidth between it and all others: by default that of
    eight links of 400 Gb/s, one for each GPU."""

    num_gpus: int = 8
    network_gb_s: float = 400.0

    def gather_s(self, gigabytes: float, ranks: int, gpu: GPU) -> float:
        """Seconds in which each of `ranks` GPUs gets `gigabytes` of which each holds a share.

        The slower of the links within a node and those between nodes decides.
        """
        seconds = gigabytes * (ranks - 1) / ranks / gpu.link_gb_s
        across = math.ceil(ranks / self.num_gpus)
        return max(seconds, gigabytes * (across - 1) / across / self.network_gb_s)


DEFAULT_NODES = Nodes()


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("h100-80", 79.6, 989, 3350, 330, 50),  # nvidia.com/en-us/data-center/h100, SXM
        GPU("h200-141", 140.4, 989, 4800, 330, 50),  # nvidia.com/en-us/data-center/h200
        GPU("a100-80", 79.3, 312, 2040, 220, 24),  # nvidia.com/en-us/data-center/a100, SXM
        GPU("a100-40", 39.6, 312, 1555, 220, 24),
        GPU("h20-96", 95.6, 148, 4000, 330, 50),
        GPU("l4-24", 22.5, 121, 300, 24, 24),  # nvidia.com/en-us/data-center/l4
        GPU("rtx4090-24", 24.0, 165, 1008, 24, 24),  # Ada architecture white paper, dense
    )
}


@dataclass(frozen=True)
class Rates:
    """Shares of a GPU's and a host's numbers that are reached. GB/s are those of one process,
    unless said otherwise."""

    train: float = 0.29  # of the FLOPs, in rows of thousands of tokens; measured
    prefill: float = 0.50
    decode: float = 0.85  # of the memory's bandwidth; measured, with the two below
    decode_step_s: float = 0.0013  # of an engine's step, whatever its batch
    # of each conversation in a step: scheduling, sampling and text, in Python
    decode_row_s: float = 2e-6
    lora_decode: float = 0.8  # of the tokens a second without adapters
    # of a micro-batch: launches of a layer's kernels in all passes, and FSDP's hooks; measured
    layer_launch_s: float = 0.0135
    search_s: float = 0.025  # of one search, in a thread beside the engine
    pageable_gb_s: float = 8.0  # between host and GPU
    load_gb_s: float = 4.0  # weights from the page cache
    save_gb_s: float = 2.0
    hash_gb_s: float = 1.2  # blake2b, one thread
    hash_threads: int = 16  # files hashed in parallel
    reload_gb_s: float = 4.0  # weights into an engine, several engines at once
    start_s: float = 14.0  # from the start of a trainer's processes until they read weights
    end_s: float = 6.0


@dataclass(frozen=True)
class Overheads:
    """GiB of a GPU that our tensors do not account for."""

    context: float = 0.6  # CUDA's, in each process
    nccl: float = 1.2  # in each of several processes
    asleep: float = 2.5  # what a sleeping engine keeps: context, graphs, workspaces
    graphs: float = 0.8  # an engine's CUDA graphs
    fragmentation: float = 0.04  # share of the peak


RATES = Rates()
OVERHEADS = Overheads()
