"""How lm-evaluation-harness is started.

It is a separate program, whose environment is layered on the project's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from tasks.engines.vllm_args import lora_rank
from tasks.models.engine import Policy, rank_of

PERMISSION = "--confirm_run_unsafe_code"  # changes no answer and no score


class Loading(Protocol):
    """The settings of the run's engine with which the harness loads a model."""

    device: Literal["cpu", "cuda"]
    dtype: str
    max_model_len: int
    gpu_memory_utilization: float
    tensor_parallel: int


class Harness(BaseModel):
    """How lm-evaluation-harness is started."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    python: str = Field(
        default=".harness/bin/python",
        description="Python of an environment with lm-eval: `make harness`",
    )
    url: str | None = Field(
        default=None, description="address of a completions server, http://host:port/v1/completions"
    )
    backend: Literal["vllm", "hf"] | None = Field(
        default=None,
        description=(
            "backend that loads the weights if there is no url; null: vllm on GPUs, else hf"
        ),
    )
    model_args: dict[str, str | int | float] = Field(
        default={},
        description=(
            "more values of --model_args if there is no url; vllm takes dtype, context, memory and"
            " number of GPUs from `engine`"
        ),
    )
    arguments: tuple[str, ...] = Field(
        default=(),
        description="more arguments, e.g. --apply_chat_template or --confirm_run_unsafe_code",
    )

    @property
    def asking(self) -> list[str]:
        """The arguments that may change how a task is asked or scored: all but `PERMISSION`.

        >>> Harness(arguments=("--confirm_run_unsafe_code", "--num_fewshot", "0")).asking
        ['--num_fewshot', '0']
        """
        return [argument for argument in self.arguments if argument != PERMISSION]

    def on(self, engine: Loading) -> Self:
        """This harness with the backend for the engine's device (lm-eval does not find vLLM's CPU
        build) and, for vLLM, with the engine's limits: by default vLLM takes 0.92 of a GPU's memory
        and the model's longest context."""
        backend = self.backend or ("vllm" if engine.device == "cuda" else "hf")
        model_args = self.model_args
        if backend == "vllm":
            model_args = {
                "dtype": engine.dtype,
                "max_model_len": engine.max_model_len,
                "gpu_memory_utilization": engine.gpu_memory_utilization,
                "tensor_parallel_size": engine.tensor_parallel,
                **self.model_args,
            }
        return self.model_copy(update={"backend": backend, "model_args": model_args})

    def command(self, policy: Policy, task: str, limit: int | None, output: Path) -> list[str]:
        """The command line for one task, without `arguments`; samples are logged below `output`.

        `limit`: the maximum number of items of the task or, for a group of tasks, of each.

        >>> base = Policy(id="p", weights="w", content_hash="h")
        >>> harness = Harness(python="py", backend="hf", model_args={"dtype": "float32"})
        >>> harness.command(base, "ifeval", 8, Path("out"))[3:8]
        ['--model', 'hf', '--model_args', 'pretrained=w,dtype=float32', '--tasks']
        """
        if self.url:
            model = "local-completions"
            model_args = {"model": policy.id, "base_url": self.url, "tokenizer": policy.weights}
        else:
            model = self.backend
            model_args = {"pretrained": policy.weights, **self.model_args}
            if policy.adapter and self.backend == "vllm":
                model_args |= {
                    "lora_local_path": policy.adapter,
                    "max_lora_rank": lora_rank(rank_of(policy.adapter)),
                }
            elif policy.adapter:
                model_args["peft"] = policy.adapter
        command = [self.python, "-m", "lm_eval", "--model", model]
        command += ["--model_args", ",".join(f"{k}={v}" for k, v in model_args.items())]
        command += ["--tasks", task, "--log_samples", "--output_path", str(output)]
        if limit:
            command += ["--limit", str(limit)]
        return command
