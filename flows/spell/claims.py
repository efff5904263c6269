"""SPELL's ablations in the micro-world, and what the paper says of each: `python -m flows.claims spell`.

Points are of 100, of the average score of Qwen2.5-7B on six benchmarks (table 2).
"""

from __future__ import annotations

from typing import Any

from flows.claims import Study, beats, raises

WHOLE = "whole"
ABLATIONS: dict[str, tuple[dict[str, Any], float]] = {  # settings, and what they cost in the paper
    "no format penalty": ({"questioner.format_penalty": False}, -1.1),
    "no grounding filter": ({"questioner.grounding_filter": False}, -1.0),
    "questioner not updated": ({"questioner.trained": False}, -4.6),
    "no history memory": ({"questioner.memory_pairs": 0}, -2.9),
    "no verifier": ({"verifier.enabled": False}, -3.2),
    "verifier not updated": ({"verifier.trained": False}, -0.4),
    "no majority vote": ({"verifier.majority_vote": False}, -0.6),
    "no consistency": ({"verifier.consistency": False}, -1.5),
}
STUDY = Study(
    method="spell",
    variants={WHOLE: {}, **{name: settings for name, (settings, _) in ABLATIONS.items()}},
    claims=(
        raises(WHOLE, at_least=0.05),
        *(beats(WHOLE, name, f"{name} costs score ({points:+.1f} points)") for name, (_, points) in ABLATIONS.items()),
    ),
    metrics={
        "held-out": ("micro", "score"),
        "general_qa": ("micro", "score_general_qa"),
        "finance_math": ("micro", "score_finance_math"),
        "multiple_choice": ("micro", "score_multiple_choice"),
        "2 hops": ("micro", "score_2_hops"),
        "pass@4": ("micro", "pass_at_4"),
    },
)
