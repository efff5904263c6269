"""On the PYTHONPATH of an engine's process, this puts a scripted engine in vLLM's place: a reply
is made from its seed alone, in a few milliseconds."""

from __future__ import annotations

import sys
import types
from typing import Any


def _engine(_: Any) -> Any:
    import time

    from tests.support.scripted import WORDS, ScriptedEngine

    class Seeded(ScriptedEngine):
        def __init__(self) -> None:
            super().__init__(self.said)
            self.seed_of: dict[Any, int] = {}

        def use(self, policy: Any) -> None:
            """Any policy will do."""

        def submit(self, key: Any, token_ids: Any, sampling: Any, seed: int, policy: Any) -> None:
            self.seed_of[key] = seed
            super().submit(key, token_ids, sampling, seed, policy)

        def said(self, key: Any, _: str) -> str:
            time.sleep(0.01)
            seed = self.seed_of[key]
            return " ".join(WORDS[-1 - seed // 7**place % 20] for place in range(3))

    return Seeded()


module = types.ModuleType("tasks.engines.vllm")
module.VllmEngine = _engine  # type: ignore[attr-defined]
sys.modules["tasks.engines.vllm"] = module
