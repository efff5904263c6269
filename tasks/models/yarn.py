"""YaRN: contexts longer than those that a model was trained on.

Peng et al. 2023, arXiv 2309.00071.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Yarn(BaseModel):
    """Stretch a model's positions `factor` times, in engines and trainer alike.

    The model's own config.json stays as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    factor: float = Field(gt=1, description="factor by which the positions are stretched")
    original: int | None = Field(
        default=None,
        ge=1,
        description="number of positions before stretching; null: all that config.json gives",
    )

    def positions(self, named: int) -> int:
        """The number of positions after stretching, if config.json states `named` positions."""
        return int(self.factor * (self.original or named))

    def settings(self, folder: Path) -> dict[str, Any]:
        """The values that replace those of the model's config.json in transformers and vLLM.

        Raises ValueError for a model without plain rotary positions.
        """
        own = json.loads((folder / "config.json").read_text())
        rope = own.get("rope_parameters") or own.get("rope_scaling") or {}
        theta = rope.get("rope_theta", own.get("rope_theta"))
        if theta is None or rope.get("rope_type", rope.get("type", "default")) != "default":
            raise ValueError(
                f"{folder} has no plain rotary positions that YaRN could stretch: its own are"
                f" {rope}"
            )
        named = own["max_position_embeddings"]
        return {
            "max_position_embeddings": self.positions(named),
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": self.factor,
                "original_max_position_embeddings": self.original or named,
                "rope_theta": theta,
            },
        }
