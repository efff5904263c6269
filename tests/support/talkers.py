"""Engines that talk: a fleet whose replies a function says at once, without processes and
without turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flows.settings.profile import MethodSettings
from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy
from tasks.rollouts.conversation import digest
from tests.support.rows import row, turn
from warehouse.schemas import PromptRow, Rollout

BASE = Policy(id="base", weights="base", content_hash="0")
Said = tuple[str, str, int]  # role, prompt and sample
Say = Callable[[str, str, int], str]


class Talkers(Fleet):
    """Engines that reply as `say` does. Remembers what was asked for."""

    def __init__(self, say: Say, cfg: MethodSettings, folder: Any) -> None:
        super().__init__(cfg.engine, 1, folder)
        self.say = say
        self.asked = list[Said]()

    def roll_out(  # type: ignore[override]
        self,
        prompts: Iterable[PromptRow],
        *,
        policy: Policy,
        group_size: int,
        seed: int,
        skip: Any,
        **_: Any,
    ) -> Iterator[Rollout]:
        for prompt in prompts:
            for n in range(group_size):
                if (prompt["prompt_id"], n) not in skip:
                    said = prompt["role"], prompt["messages"][-1]["content"], n
                    self.asked.append(said)
                    yield self.rollout(prompt, n, seed, policy, self.say(*said))

    def rollout(self, prompt: PromptRow, n: int, seed: int, policy: Policy, reply: str) -> Any:
        ids = {
            "rollout_id": digest(prompt["prompt_id"], n, seed).hex(),
            "prompt_id": prompt["prompt_id"],
            "sample": n,
        }
        made = {
            "role": prompt["role"],
            "policy_hash": policy.content_hash,
            "finish_reason": "final",
            "seed": seed,
        }
        return row(
            "rollouts",
            **ids,
            **made,
            reply=reply,
            turns=[turn(reply)],
            num_sampled_tokens=len(reply),
        )
