"""How lm-evaluation-harness is started.

It is a program of its own, whose environment lies on top of the project's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from tasks.engines.vllm_args import lora_rank
from tasks.models.engine import Policy, rank_of

PERMISSION = "--confirm_run_unsafe_code"  # changes no answer and no score


class Harness(BaseModel):
    """How lm-evaluation-harness is started."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    python: str = Field(
        default=".harness/bin/python",
        description="the Python of an environment with lm-eval: `make harness`",
    )
    url: str | None = Field(
        default=None, description="of a server of completions, http://host:port/v1/completions"
    )
    backend: Literal["vllm", "hf"] | None = Field(
        default=None,
        description="loads the weights if there is no url; null: vllm on GPUs, else hf",
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

    def on(self, device: str) -> Self:
        """With the backend for a device: lm-eval does not find vLLM's CPU build."""
        if self.backend:
            return self
        return self.model_copy(update={"backend": "vllm" if device == "cuda" else "hf"})

    def command(self, policy: Policy, task: str, limit: int | None, output: Path) -> list[str]:
        """Its command line for one task, without `arguments`; samples are logged below `output`.

        `limit`: the most items of the task or, of a group of tasks, of each.

        >>> base = Policy(id="p", weights="w", content_hash="h")
        >>> Harness(python="py").on("cuda").command(base, "ifeval", 8, Path("out"))[3:8]
        ['--model', 'vllm', '--model_args', 'pretrained=w', '--tasks']
        """
        if self.url:
            model = "local-completions"
            model_args = {"model": policy.id, "base_url": self.url, "tokenizer": policy.weights}
        else:
            model = self.backend
            model_args = {"pretrained": policy.weights}
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
