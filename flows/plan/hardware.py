"""Published rates of GPUs and hosts, and the shares of them that programs reach.

Five shares were measured on one H100, with an adapter on the shape of Qwen3-8B
(data/bench/gpu.jsonl); every other share is an assumption. Lengths of conversations can be taken
from an earlier run (`flows.plan.measured`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GIB = 1 << 30
MIN_DRIVER = 580  # NVIDIA's minimum for CUDA 13, which the locked torch and vLLM are built with


@dataclass(frozen=True)
class GPU:
    """One card. The bandwidths, in GB/s, are those of its memory, of an all-gather over a node's
    links, and to pinned host memory."""

    name: str
    memory_gib: float  # as shown by nvidia-smi
    tflops: float  # bfloat16, dense
    memory_gb_s: float
    link_gb_s: float
    host_gb_s: float


@dataclass(frozen=True)
class Nodes:
    """The number of GPUs of a node, and its bandwidth to all other nodes, by default that of eight
    links of 400 Gb/s, one per GPU."""

    num_gpus: int = 8
    network_gb_s: float = 400.0

    def gather_s(self, gigabytes: float, ranks: int, gpu: GPU) -> float:
        """Seconds of an all-gather after which each of `ranks` GPUs has all `gigabytes`.

        Either the links within a node or those between nodes are the bottleneck.
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
    """The shares of a GPU's and a host's published rates that programs reach.

    GB/s are those of one process unless stated otherwise.
    """

    train: float = 0.29  # of the peak FLOP/s, in rows of thousands of tokens; measured
    prefill: float = 0.50
    decode: float = 0.85  # of the memory's bandwidth; measured, as are the two below
    decode_step_s: float = 0.0013  # per engine step, whatever the batch size
    # per conversation in a step: scheduling, sampling and detokenizing, in Python
    decode_row_s: float = 2e-6
    lora_decode: float = 0.8  # of the tokens per second without adapters
    # per micro-batch: launches of a layer's kernels in all passes, and FSDP's hooks; measured
    layer_launch_s: float = 0.0135
    search_s: float = 0.025  # per search, in a thread next to the engine
    pageable_gb_s: float = 8.0  # between host and GPU
    load_gb_s: float = 4.0  # weights from the page cache
    save_gb_s: float = 2.0
    hash_gb_s: float = 1.2  # blake2b, one thread
    hash_threads: int = 16  # files hashed in parallel
    reload_gb_s: float = 4.0  # weights into an engine, while several engines load
    start_s: float = 14.0  # from starting a trainer's processes until they read weights
    end_s: float = 6.0


@dataclass(frozen=True)
class Overheads:
    """GiB on a GPU that our tensors do not account for."""

    context: float = 0.6  # CUDA's context, in each process
    nccl: float = 1.2  # in each process, if there are several
    asleep: float = 2.5  # what a sleeping engine keeps: context, graphs, workspaces
    graphs: float = 0.8  # an engine's CUDA graphs
    fragmentation: float = 0.04  # as a share of the peak


RATES = Rates()
OVERHEADS = Overheads()
